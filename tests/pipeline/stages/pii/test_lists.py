"""Values in lists, rows and dumps: what separates two values hides neither."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.stages.pii import PiiParams, scrub
from tests.rows import documents

LENGTH = 40


def scrubbed(*texts: str, **params: object) -> list[str]:
    return scrub(documents(*texts), PiiParams.model_validate(params))[0].column("text").to_pylist()


def card(number: int) -> str:
    """A 16-digit number that begins with 4 and has the right check digit."""
    digits = f"4{411_111_111_111 + number * 7919:014d}"
    total = sum(sum(divmod(int(c) * (2 - i % 2), 10)) for i, c in enumerate(digits))
    return f"{digits}{-total % 10}"


def iban(number: int) -> str:
    body = f"WEST{12_345_698_760_000 + number}"
    value = int("".join(str(int(c, 36)) for c in f"{body}GB00"))
    return f"GB{98 - value % 97:02d}{body}"


def in_fours(value: str, separator: str = " ") -> str:
    return separator.join(value[i : i + 4] for i in range(0, len(value), 4))


LISTS = {
    name: [make(number) for number in range(LENGTH)]
    for name, make in {
        "email": lambda i: f"user{i}@mail{i}.org",
        "ssn": lambda i: f"{123 + i}-45-{6789 + i}",
        "phone": lambda i: f"212-555-{1234 + i}",
        "phone with dots": lambda i: f"212.555.{1234 + i}",
        "phone with spaces": lambda i: f"212 555 {1234 + i}",
        "phone with brackets": lambda i: f"(212) 555-{1234 + i}",
        "international phone": lambda i: f"+44 20 7946 {958 + i:04d}",
        "unbroken phone": lambda i: f"+12125551{234 + i}",
        "French phone": lambda i: f"01 84 17 61 {18 + i}",
        "German phone": lambda i: f"0171 12345{18 + i}",
        "card": card,
        "card with spaces": lambda i: in_fours(card(i)),
        "card with hyphens": lambda i: in_fours(card(i), "-"),
        "IPv4": lambda i: f"93.184.{216 + i % 30}.{34 + i}",
        "IPv6": lambda i: f"2606:4700:4700::{1111 + i}",
        "IBAN": iban,
        "IBAN with spaces": lambda i: in_fours(iban(i)),
        "secret": lambda i: f"AKIAIOSFODNN7EX{i:02d}PLE",
    }.items()
}
SEPARATORS = [
    *",;|/:+)(-_=&#*~$%@^!?<>{}[]'\"`.\\ \t\n\0",
    *("\u00a0", "\u2013", "\u2014", "\u2026", "\u2028", "\u00b7", "\u3001", "\uff0c"),
    *("  ", "\r\n", ", ", "; ", " | ", " / ", ": ", " + ", ") (", " \u2013 ", " - ", ". "),
    *("\\n", "\\t", "\\r\\n", "\\\\n", "\\u00a0", '","', "','", "),(", "<br>"),
]


@pytest.mark.parametrize("kind", LISTS)
def test_every_value_of_a_list_goes_whatever_separates_them(kind: str) -> None:
    separators = [separator for separator in SEPARATORS if (kind, separator) != ("IPv4", ".")]  # an OID
    found = scrubbed(*(separator.join(LISTS[kind]) for separator in separators))
    left = {
        separator: [value for value in LISTS[kind] if value in text]
        for separator, text in zip(separators, found, strict=True)
    }
    assert {separator: values for separator, values in left.items() if values} == {}


ROWS = [
    {
        "id": number,
        "ssn": LISTS["ssn"][number],
        "phone": LISTS["phone"][number],
        "card": LISTS["card"][number],
        "email": LISTS["email"][number],
        "ip": LISTS["IPv4"][number],
        "iban": LISTS["IBAN"][number],
    }
    for number in range(LENGTH)
]
FILES = {
    "CSV": "\n".join(",".join(map(str, row.values())) for row in ROWS),
    "CSV with CRLF": "\r\n".join(",".join(map(str, row.values())) for row in ROWS),
    "quoted CSV": "\n".join(",".join(f'"{value}"' for value in row.values()) for row in ROWS),
    "TSV": "\n".join("\t".join(map(str, row.values())) for row in ROWS),
    "slashes": "\n".join("/".join(map(str, list(row.values())[1:4])) for row in ROWS),
    "JSON": json.dumps(ROWS),
    "compact JSON": json.dumps(ROWS, separators=(",", ":")),
    "JSON of numbers": json.dumps(
        [[row["id"], int(str(row["card"]))] for row in ROWS], separators=(",", ":")
    ),
    "JSON in JSON": json.dumps({"rows": json.dumps(ROWS, indent=1)}),
    "escaped lines": json.dumps("\n".join("\t".join(map(str, row.values())) for row in ROWS)),
    "escaped characters": json.dumps(
        "\u2013".join("\u00a0".join(map(str, list(row.values())[1:4])) for row in ROWS)
    ),
    "log": "\n".join(
        f"2026-11-22 12:{row['id']:02d}:56 {row['phone']} ssn={row['ssn']} card:{row['card']} "
        f"from={row['email']}:{row['ip']}:443"
        for row in ROWS
    ),
    "SQL": "INSERT INTO people VALUES "
    + ",".join(
        f"({row['id']},'{row['ssn']}','{row['phone']}',{row['card']},'{row['email']}')" for row in ROWS
    ),
    "age first": "\n".join(f"Ann,{age},{row['ssn']}" for age, row in enumerate(ROWS, 20)),
    "zip code first": "\n".join(f"Ann,{code},{row['phone']}" for code, row in enumerate(ROWS, 10_000)),
}


@pytest.mark.parametrize("name", FILES)
def test_every_value_of_a_file_of_rows_goes(name: str) -> None:
    text = FILES[name]
    (found,) = scrubbed(text)
    values = {str(value) for row in ROWS for key, value in row.items() if key != "id"}
    assert [value for value in values if value in text] != []
    assert [value for value in values if value in found] == []


@pytest.mark.parametrize("replacement", ["placeholder", "format"])
def test_scrubbing_lists_and_files_again_changes_nothing(replacement: str) -> None:
    texts = [*FILES.values(), *(s.join(values) for values in LISTS.values() for s in SEPARATORS)]
    once = scrubbed(*texts, replacement=replacement)
    assert scrubbed(*once, replacement=replacement) == once


@given(
    st.lists(
        st.tuples(
            st.one_of(st.sampled_from([values[3] for values in LISTS.values()]), st.from_regex("[0-9]{1,4}")),
            st.one_of(st.sampled_from([*SEPARATORS, "", "call ", "ext 12", "version "])),
        ),
        max_size=10,
    ),
    st.sampled_from([{}, {"replacement": "format"}, {"ip": "all"}, {"kinds": ["phone", "ip"]}]),
)
@settings(max_examples=150, deadline=None)
def test_values_of_all_kinds_side_by_side_are_found_at_once(
    pieces: list[tuple[str, str]], params: dict[str, object]
) -> None:
    once = scrubbed("".join(map("".join, pieces)), **params)
    assert scrubbed(*once, **params) == once


@pytest.mark.parametrize(
    "text",
    [
        "1-123-45-6789",
        "123-45-6789-1",
        "12.4111111111111111",
        "4111-1111-1111-1111-1111",
        "call at 12:30 555 1234",
        "phones: 12,345 6789",
        "a1_212-555-1234",
        "x123-45-6789",
        "user\\name123-45-6789",
        "\\u00e9x123-45-6789",
        "C 989.837 1418 950.553 1426.58 938.876 1428.71",
        'points="1040,277.764 1035,267.764 1040"',
        "1.83.46.48.3.75.83.81",
    ],
)
def test_a_neighbor_that_continues_a_number_keeps_it(text: str) -> None:
    assert scrubbed(text) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("212-555-1234/212-555-5678", "[PHONE]/[PHONE]"),
        ("0171 1234567/0490 75 40 81", "[PHONE]/[PHONE]"),
        ("1)212-555-1234 2)212-555-5678", "1)[PHONE] 2)[PHONE]"),
        ("SSNs: 123456789, 124456789 and 125456789", "SSNs: [SSN], [SSN] and [SSN]"),
        ("4111111111111111/12/27", "[CREDIT_CARD]/12/27"),
        ("line\\nphone: 467 3395\\n", "line\\nphone: [PHONE]\\n"),
        ("j\\u00fcrgen\\njo@doe.org", "j\\u00fcrgen\\n[EMAIL]"),
        ("Message-Id: <200104061723.JAB03225@mail.example.org>", "Message-Id: <[EMAIL]>"),
        ("212-555-1234#4111111111111111", "[PHONE]#[CREDIT_CARD]"),
    ],
)
def test_what_only_separates_two_values_hides_neither(text: str, expected: str) -> None:
    assert scrubbed(text) == [expected]
