"""Labeled personal data: each form of a kind in each surrounding, as one text with the place of the value.

`usual` forms are what people and programs write; `odd` ones are what copying, encoding and wrapping make of
them. Seeded: the same values on every run.
"""

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from urllib.parse import quote

Make = Callable[[Random], str]
MARK = "\0"  # stands on both sides of the value in a form that has words of its own


@dataclass(frozen=True)
class Value:
    kind: str
    form: str
    usual: bool
    text: str
    start: int
    end: int


def digits(rng: Random, pattern: str) -> str:
    """`pattern` with each "d" replaced by a digit, and each "n" by one from 2 to 9."""
    return "".join(
        rng.choice(string.digits) if c == "d" else rng.choice("23456789") if c == "n" else c for c in pattern
    )


def letters(rng: Random, count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(rng.choices(alphabet, k=count))


def pattern(*patterns: str) -> Make:
    return lambda rng: digits(rng, rng.choice(patterns))


def email(rng: Random) -> str:
    first, last = (
        rng.choice(["john", "Mary", "wei", "olga", "j"]),
        rng.choice(["smith", "o'neil", "Lee", "kim"]),
    )
    local = rng.choice([f"{first}.{last}", f"{first}{digits(rng, 'dd')}", f"{last}_{first}", f"{first}+news"])
    host = rng.choice(
        ["corp.com", "mail.uni-bonn.de", "x.co.uk", "Company.ORG", "dept.stanford.edu", "web.io"]
    )
    return f"{local}@{host}"


def us_phone(layout: str) -> Make:
    return lambda rng: digits(rng, layout.replace("ddd", "ndd", 2))


def ssn(rng: Random, layout: str = "{}-{}-{}") -> str:
    area = rng.choice([n for n in range(100, 900) if n not in (666, 219)])
    return layout.format(area, f"{rng.randrange(1, 100):02d}", f"{rng.randrange(1, 10_000):04d}")


def card(rng: Random) -> str:
    start, size = rng.choice([("4", 16), ("51", 16), ("55", 16), ("2321", 16), ("6011", 16), ("37", 15)])
    body = start + digits(rng, "d" * (size - 1 - len(start)))
    doubled = sum(sum(divmod(int(c) * (2 - i % 2), 10)) for i, c in enumerate(reversed(body)))
    return f"{body}{-doubled % 10}"


def in_groups(number: str, separator: str) -> str:
    widths = (4, 6, 5) if len(number) == 15 else (4,) * 4
    starts = [sum(widths[:i]) for i in range(len(widths))]
    return separator.join(number[start : start + width] for start, width in zip(starts, widths, strict=True))


def iban(rng: Random) -> str:
    country, body = rng.choice(
        [("DE", "d" * 18), ("FR", "d" * 23), ("GB", "WEST" + "d" * 14), ("ES", "d" * 20), ("NO", "d" * 11)]
    )
    body = digits(rng, body)
    value = int("".join(str(int(c, 36)) for c in f"{body}{country}00"))
    return f"{country}{98 - value % 97:02d}{body}"


def in_fours(value: str, separator: str = " ") -> str:
    return separator.join(value[i : i + 4] for i in range(0, len(value), 4))


def ipv4(rng: Random) -> str:
    first = rng.choice([n for n in range(20, 224) if n not in (100, 127, 169, 172, 192, 198, 203)])
    return ".".join(map(str, (first, *(rng.randrange(10, 256) for _ in range(3)))))


def ipv6(rng: Random) -> str:
    groups = [f"2{letters(rng, 3, '0123456789abcdef')}"] + [
        f"{rng.randrange(4096, 65536):x}" for _ in range(7)
    ]
    groups[0] = rng.choice(["2606", "2a00", "2620", "2400"])
    return rng.choice([":".join(groups), f"{':'.join(groups[:3])}::{groups[3]}"])


def jwt(rng: Random) -> str:
    return f"eyJhbGciOiJIUzI1NiJ9.eyJ{letters(rng, 30)}.{letters(rng, 43)}"


BASE64 = string.ascii_letters + string.digits + "+/"


def after(words: str, make: Make) -> Make:
    """The value after words that belong to the form."""
    return lambda rng: f"{words}{MARK}{make(rng)}{MARK}"


def between(before: str, make: Make, behind: str) -> Make:
    return lambda rng: f"{before}{MARK}{make(rng)}{MARK}{behind}"


def changed(make: Make, change: Callable[[str, Random], str]) -> Make:
    return lambda rng: change(make(rng), rng)


def inserted(character: str) -> Callable[[str, Random], str]:
    def insert(value: str, rng: Random) -> str:
        place = rng.randrange(1, len(value))
        return value[:place] + character + value[place:]

    return insert


def replaced(old: str, new: str) -> Callable[[str, Random], str]:
    return lambda value, rng: value.replace(old, new)


def wide(value: str, rng: Random) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in value)


def arabic(value: str, rng: Random) -> str:
    return "".join(chr(0x660 + int(c)) if c.isdigit() else c for c in value)


def wrapped(value: str, rng: Random) -> str:
    """One of the spaces is a line break, with what begins the next line."""
    spaces = [i for i, c in enumerate(value) if c == " "]
    place = rng.choice(spaces)
    return value[:place] + rng.choice(["\n", "\r\n", " \n", "\n  ", "\n> "]) + value[place + 1 :]


def in_query(value: str, rng: Random) -> str:
    key = rng.choice(["q", "id", "to", "n", "value"])
    return f"https://shop.example/u/find?{key}={MARK}{quote(value, safe='')}{MARK}"


def underscored(value: str, rng: Random) -> str:
    before, behind = rng.choice(["backup", "user_file", "IMG"]), rng.choice(["final", "v", "2.pdf"])
    return f"{before}_{MARK}{value}{MARK}_{behind}"


US_DASHES = us_phone("ddd-ddd-dddd")
SPACED_CARD = changed(card, lambda value, rng: in_groups(value, " "))
SPACED_IBAN = changed(iban, lambda value, rng: in_fours(value))
AWS_KEY = lambda rng: f"AKIA{letters(rng, 16, string.ascii_uppercase + '234567')}"  # noqa: E731
AWS_SECRET = lambda rng: letters(rng, 40, BASE64)  # noqa: E731
GITHUB = lambda rng: f"ghp_{letters(rng, 36)}"  # noqa: E731

USUAL: dict[str, dict[str, Make]] = {
    "email": {"plain": email},
    "phone": {
        "US (ddd) ddd-dddd": us_phone("(ddd) ddd-dddd"),
        "US (ddd)ddd-dddd": us_phone("(ddd)ddd-dddd"),
        "US dashes": US_DASHES,
        "US dots": us_phone("ddd.ddd.dddd"),
        "US 1-": us_phone("1-ddd-ddd-dddd"),
        "US +1": us_phone("+1 ddd ddd dddd"),
        "US +1 unbroken": us_phone("+1dddddddddd"),
        "US extension": us_phone("ddd-ddd-dddd x123"),
        "UK": pattern("+44 20 7946 0ddd", "+4420794dddddd", "020 7946 0ddd", "07911 1ddddd", "0161 496 0ddd"),
        "DE": pattern("030 7311ddd", "0171 73113dd", "+49 30 9018dd", "+49 171 73113dd", "0049 30 9018dd"),
        "FR": pattern("01 84 17 61 dd", "06 12 34 dd dd", "+33 1 84 17 61 dd", "01.84.17.61.dd"),
        "BR": pattern("(11) 9ndd3-5ddd", "(21) ndd3-5ddd", "+55 11 9ndd3-5ddd"),
    },
    "ssn": {
        "dashes": ssn,
        "spaces after a word": after("SSN ", lambda rng: ssn(rng, "{} {} {}")),
        "unbroken after words": after("social security number: ", lambda rng: ssn(rng, "{}{}{}")),
    },
    "credit_card": {
        "unbroken": card,
        "spaces": SPACED_CARD,
        "dashes": changed(card, lambda value, rng: in_groups(value, "-")),
    },
    "iban": {"unbroken": iban, "spaces": SPACED_IBAN, "lower case": changed(iban, lambda v, rng: v.lower())},
    "ip": {"IPv4": ipv4, "IPv6": ipv6},
    "secret": {
        "AWS": AWS_KEY,
        "AWS secret": after("aws_secret_access_key = ", AWS_SECRET),
        "GitHub": GITHUB,
        "Slack": lambda rng: f"xoxb-{digits(rng, 'd' * 11)}-{letters(rng, 24)}",
        "Google": lambda rng: f"AIza{letters(rng, 35)}",
        "Stripe": lambda rng: f"sk_live_{letters(rng, 24)}",
        "OpenAI": lambda rng: f"sk-proj-{letters(rng, 48)}",
        "JWT": jwt,
        "URL": between("postgres://", lambda rng: f"app:{letters(rng, 12)}", "@db.example.org/x"),
    },
}

# what copying and typesetting make of a value: name, the kinds it can befall, the change
ZERO_WIDTH = {"soft hyphen": "\u00ad", "zero-width space": "\u200b", "word joiner": "\u2060", "BOM": "\ufeff"}
DASHES = {"U+2010": "\u2010", "U+2013": "\u2013", "U+2014": "\u2014", "U+2015": "\u2015", "U+2212": "\u2212"}
SPACES = {
    "no-break space": "\u00a0",
    "thin space": "\u2009",
    "narrow space": "\u202f",
    "wide space": "\u3000",
}
PLAIN: dict[str, Make] = {
    "email": email,
    "phone": US_DASHES,
    "ssn": ssn,
    "credit_card": card,
    "iban": iban,
    "ip": ipv4,
}
WITH_DASHES: dict[str, Make] = {"phone": US_DASHES, "ssn": ssn, "credit_card": USUAL["credit_card"]["dashes"]}
WITH_SPACES: dict[str, Make] = {
    "phone": us_phone("(ddd) ddd-dddd"),
    "credit_card": SPACED_CARD,
    "iban": SPACED_IBAN,
}


def odd_forms(kind: str) -> Iterator[tuple[str, Make]]:
    if kind in PLAIN:
        for name, character in ZERO_WIDTH.items():
            yield name, changed(PLAIN[kind], inserted(character))
    if kind in WITH_DASHES:
        for name, character in DASHES.items():
            yield name, changed(WITH_DASHES[kind], replaced("-", character))
        yield "written \\u2011", changed(WITH_DASHES[kind], replaced("-", "\\u2011"))
    if kind in WITH_SPACES:
        for name, character in SPACES.items():
            yield name, changed(WITH_SPACES[kind], replaced(" ", character))
        yield "written \\u00a0", changed(WITH_SPACES[kind], replaced(" ", "\\u00a0"))
        yield "&nbsp;", changed(WITH_SPACES[kind], replaced(" ", "&nbsp;"))
    if kind in ("phone", "ssn", "credit_card", "ip"):
        yield "full-width digits", changed(PLAIN[kind], wide)
        yield "Arabic digits", changed(PLAIN[kind], arabic)
    if kind != "email" and kind in PLAIN:
        yield "between _", changed(PLAIN[kind], underscored)
    yield from ODD.get(kind, {}).items()


ODD: dict[str, dict[str, Make]] = {
    "email": {
        form: changed(email, replaced("@", at))
        for form, at in {
            "full-width @": "\uff20",
            "%40": "%40",
            "&#64;": "&#64;",
            "&#x40;": "&#x40;",
            "&commat;": "&commat;",
            "\\u0040": "\\u0040",
            "\\x40": "\\x40",
            "(at)": " (at) ",
            "[at]": "[at]",
            "<AT>": " <AT> ",
            "(a)": "(a)",
            "[@]": " [@] ",
        }.items()
    }
    | {"in a query": changed(email, in_query)},
    "phone": {
        "in a query": changed(US_DASHES, in_query),
        "+ in a query": changed(us_phone("+1dddddddddd"), in_query),
        "brackets in a query": changed(us_phone("(ddd) ddd-dddd"), in_query),
        "brackets between _": changed(us_phone("(ddd)ddd-dddd"), underscored),
        "+ between _": changed(us_phone("+1ddd-ddd-dddd"), underscored),
    },
    "ssn": {"thin space after a word": after("SSN ", lambda rng: ssn(rng, "{}\u2009{}\u2009{}"))},
    "credit_card": {
        "wrapped": changed(SPACED_CARD, wrapped),
        "in a query": changed(card, in_query),
        "spaces in a query": changed(SPACED_CARD, in_query),
        "spaces between _": changed(USUAL["credit_card"]["dashes"], underscored),
    },
    "iban": {"wrapped": changed(SPACED_IBAN, wrapped), "in a query": changed(iban, in_query)},
    "secret": {
        "AWS between _": changed(AWS_KEY, underscored),
        "GitHub between _": changed(GITHUB, underscored),
        "SecretAccessKey": between('"SecretAccessKey": "', AWS_SECRET, '",'),
        "AccountKey": between(
            "AccountName=logs;AccountKey=", lambda rng: letters(rng, 86, BASE64) + "==", ";"
        ),
        "SharedAccessKey": between("SharedAccessKey=", lambda rng: letters(rng, 43, BASE64) + "=", ""),
        "Bearer": between("Authorization: Bearer ", lambda rng: letters(rng, 40), ""),
        "Bearer in JSON": between('"Authorization": "Bearer ', lambda rng: letters(rng, 32), '"'),
        "Basic": between("authorization: Basic ", lambda rng: letters(rng, 30, BASE64) + "==", ""),
    },
}

SURROUNDINGS = """
{}
Hello {}
mail or call {} today.
Please contact me at {}, thanks
My number is {}!
({})
[{}]
"{}"
'{}'
<{}>
<td>{}</td>
<b>contact:</b> {}<br/>
**{}**
- {}
* {} (home)
1. {}
| name | {} | x |
name;{};x
name,{},x
"name","{}","x"
94105,{},x
94105,"{}",x
3,{},5
2024-03-19,{},open
97.98,{},4
name\t{}\t7
Ann 34\t{}
{{"v": "{}"}}
{{"a": 1, "v": "{}", "b": 2}}
{{'v': '{}'}}
v={}
v: {}
v: '{}'
key="{}";
print("{}")  # test
// {}
/* {} */
INSERT INTO t VALUES (12, '{}', 'x');
INFO 2024-03-19 12:01:15 user={} ok
2024-03-01 {} was seen
12:01:15 {} joined
350 Fifth Avenue, New York, NY 10118 {}
Phone: NY 10118 {}
10115 Berlin, {}
on 3/14/2019 {} wrote
line\\n{}\\nline
From: {}
> {} wrote:
\u540d\u524d\uff1a{}\u3001\u4ee5\u4e0a
Контакт: {} (Анна)
"""


def values(per_form: int, seed: int) -> Iterator[Value]:
    """`per_form` values of each form, each in the next surrounding."""
    rng = Random(seed)
    surroundings = SURROUNDINGS.strip("\n").split("\n")
    for kind in USUAL:
        for usual, forms in ((True, USUAL[kind].items()), (False, odd_forms(kind))):
            for form, make in forms:
                for number in range(per_form):
                    surrounding = surroundings[number % len(surroundings)]
                    yield labelled(kind, form, usual, make(rng), surrounding)


def labelled(kind: str, form: str, usual: bool, written: str, surrounding: str) -> Value:
    written = written if MARK in written else f"{MARK}{written}{MARK}"
    before, value, behind = surrounding.format(written).split(MARK)
    return Value(kind, form, usual, before + value + behind, len(before), len(before) + len(value))
