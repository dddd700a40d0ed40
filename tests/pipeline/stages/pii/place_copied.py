"""What copying, encoding and wrapping make of values."""

from random import Random
from string import ascii_uppercase
from urllib.parse import quote

from tests.pipeline.stages.pii.place_forms import (
    BASE64,
    US,
    Make,
    base62,
    change,
    fours,
    layouts,
    marked,
    spaced,
    ssns,
)
from tests.pipeline.stages.pii.place_values import card, email, iban, ipv4, ssn

ZERO_WIDTH = "\u00ad\u200b\u2060\ufeff"
DASHES = (*"\u2010\u2013\u2014\u2015\u2212", "\\u2011")
SPACES = (*"\u00a0\u2009\u202f\u3000", "\\u00a0", "&nbsp;")
ATS = ("\uff20", "%40", "&#64;", "&#x40;", "&commat;", "\\u0040", "\\x40")
SPELLED_ATS = (" (at) ", "[at]", " <AT> ", "(a)", " [@] ")
LINE_ENDS = ("\n", "\r\n", " \n", "\n  ", "\n> ")
WIDE, ARABIC = ([(str(digit), chr(first + digit)) for digit in range(10)] for first in (0xFF10, 0x660))
BRACKETS, NARROW, PLUS = (layouts(one)[0] for one in ("(*##) *##-####", "(*##)*##-####", "+1*##*######"))
AWS_KEY, AWS_SECRET = base62(16, "AKIA", ascii_uppercase + "234567"), base62(40, "", BASE64)
WITH_DASHES = {"phone": US, "ssn": ssn, "credit_card": spaced("-")}
WITH_SPACES = {"phone": BRACKETS, "credit_card": spaced(" "), "iban": fours(" ")}
PLAIN = {"email": email, "phone": US, "ssn": ssn, "credit_card": card, "iban": iban, "ipv4": ipv4}


def with_a(make: Make, character: str) -> Make:
    """The value with a character somewhere in it."""

    def made(rng: Random) -> str:
        value = make(rng)
        place = rng.randrange(1, len(value))
        return value[:place] + character + value[place:]

    return made


def wrapped(make: Make) -> Make:
    """One of the spaces is a line break, with what begins the next line."""

    def made(rng: Random) -> str:
        value = make(rng)
        place = rng.choice([i for i, c in enumerate(value) if c == " "])
        return value[:place] + rng.choice(LINE_ENDS) + value[place + 1 :]

    return made


def in_query(make: Make) -> Make:
    def made(rng: Random) -> str:
        key = rng.choice(["q", "id", "to", "n", "value"])
        return f"https://shop.example/u/find?{key}=\0{quote(make(rng), safe='')}\0"

    return made


def underscored(make: Make) -> Make:
    def made(rng: Random) -> str:
        before, behind = rng.choice(["backup", "user_file", "IMG"]), rng.choice(["final", "v", "2.pdf"])
        return f"{before}_\0{make(rng)}\0_{behind}"

    return made


COPIED: dict[str, list[Make]] = {
    "email": [*(change(email, ("@", at)) for at in ATS + SPELLED_ATS), in_query(email)],
    "phone": [
        *map(in_query, (US, PLUS, BRACKETS)),
        *map(underscored, (US, NARROW, *layouts("+1*##-*##-####"))),
    ],
    "ssn": [marked("SSN ", ssns("{}\u2009{}\u2009{}")), underscored(ssn)],
    "credit_card": [
        wrapped(spaced(" ")),
        *map(in_query, (card, spaced(" "))),
        *map(underscored, (card, spaced("-"))),
    ],
    "iban": [wrapped(fours(" ")), in_query(iban), underscored(iban)],
    "ipv4": [underscored(ipv4)],
    "secret": [
        underscored(AWS_KEY),
        underscored(base62(36, "ghp_")),
        marked('"SecretAccessKey": "', AWS_SECRET, '",'),
        marked("AccountName=logs;AccountKey=", lambda rng: base62(86, "", BASE64)(rng) + "==", ";"),
        marked("SharedAccessKey=", lambda rng: base62(43, "", BASE64)(rng) + "="),
        marked("Authorization: Bearer ", base62(40)),
        marked('"Authorization": "Bearer ', base62(32), '"'),
        marked("authorization: Basic ", lambda rng: base62(30, "", BASE64)(rng) + "=="),
        marked("aws_secret_access_key = ", AWS_SECRET),
        marked("postgres://", lambda rng: f"app:{base62(12)(rng)}", "@db.example.org/x"),
    ],
}
for kind, make in PLAIN.items():
    COPIED[kind] += [with_a(make, character) for character in ZERO_WIDTH]
    if kind not in ("email", "iban"):
        COPIED[kind] += [change(make, *WIDE), change(make, *ARABIC)]
for kind, make in WITH_DASHES.items():
    COPIED[kind] += [change(make, ("-", dash)) for dash in DASHES]
for kind, make in WITH_SPACES.items():
    COPIED[kind] += [change(make, (" ", space)) for space in SPACES]
