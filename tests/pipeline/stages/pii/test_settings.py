"""The user's own patterns, the values that stay, and private addresses."""

import time

import pytest
from pydantic import ValidationError

from pipeline.stages.pii import PiiParams, scrub
from tests.rows import documents

EMPLOYEE = {"name": "employee", "regex": r"\bEMP-\d{6}\b"}


def scrubbed(text: str, **params: object) -> str:
    once, _ = scrub(documents(text), PiiParams.model_validate(params))
    found = once.column("text")[0].as_py()
    again, _ = scrub(once, PiiParams.model_validate(params))
    assert again.column("text")[0].as_py() == found
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.168.1.1 10.0.0.1 127.0.0.1 169.254.1.1 100.64.0.1", "[IP] [IP] [IP] [IP] [IP]"),
        ("fe80::1 ::1 fd00::1 2001:db8::1 ::ffff:10.0.0.1", "[IP] [IP] [IP] [IP] [IP]"),
        (
            "8.8.8.8 and version 10.1.2.3, 0.1.2.3 and std::vector",
            "[IP] and version 10.1.2.3, 0.1.2.3 and std::vector",
        ),
    ],
)
def test_private_and_reserved_addresses_go_where_all_are_wanted(text: str, expected: str) -> None:
    assert scrubbed(text, ip="all") == expected
    assert scrubbed(text) != expected or "version" in text


@pytest.mark.parametrize("address", ["email@1.2.3.4", "jo.doe@[192.168.1.1]", "jo@8.8.8.8"])
def test_an_email_address_may_have_an_ip_address_for_its_domain(address: str) -> None:
    assert scrubbed(f"write to {address}, please") == "write to [EMAIL], please"


@pytest.mark.parametrize(
    "text", ["lodash@4.17.21", "pkg@1.2.3.4-beta", "pkg@1.2.3.4.5", "root@10.0.0.1:dir/file"]
)
def test_a_version_or_a_remote_path_is_no_such_address(text: str) -> None:
    assert scrubbed(text) == text


def test_a_pattern_of_the_users_own_is_replaced_counted_and_placed_in_characters() -> None:
    text = "é EMP-123456 wrote to jo@doe.org, 🙂 EMP-654321"
    once, spans = scrub(documents(text), PiiParams.model_validate({"patterns": [EMPLOYEE]}))
    assert once.column("text")[0].as_py() == "é [EMPLOYEE] wrote to [EMAIL], 🙂 [EMPLOYEE]"
    assert [(row["kind"], text[row["start"] : row["end"]]) for row in spans.to_pylist()] == [
        ("employee", "EMP-123456"),
        ("email", "jo@doe.org"),
        ("employee", "EMP-654321"),
    ]


def test_a_pattern_comes_before_the_kinds_that_ship_and_before_later_patterns() -> None:
    later = {"name": "any_number", "regex": r"[0-9-]{9,}", "placeholder": "[A NUMBER]"}
    text = "case 212-555-1234, 212-555-1235X and EMP-123456"
    first = {"name": "case", "regex": r"case [0-9-]+"}
    assert scrubbed(text, patterns=[first, later, EMPLOYEE]) == "[CASE], [A NUMBER]X and [EMPLOYEE]"
    assert scrubbed(text, patterns=[EMPLOYEE], kinds=[]) == text.replace("EMP-123456", "[EMPLOYEE]")


def test_a_match_stays_unless_its_checksum_is_right() -> None:
    pattern = {"name": "member", "regex": r"\b[0-9]{4}[0-9 ]*[0-9]\b", "checksum": "luhn"}
    assert scrubbed("<7992 7398713>", patterns=[pattern], kinds=[]) == "<[MEMBER]>"
    assert scrubbed("<7992 7398710>", patterns=[pattern], kinds=[]) == "<7992 7398710>"


def test_a_pattern_that_matches_placeholders_leaves_them() -> None:
    capitals = {"name": "name", "regex": "[A-Z]{3,}"}
    for replacement in ("placeholder", "format"):
        assert scrubbed("ADA: a@b.org", patterns=[capitals], replacement=replacement).startswith("[NAME]: ")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"name": "a", "regex": "(?=x)"}, "not a regular expression of RE2"),
        ({"name": "a", "regex": "(a"}, "not a regular expression of RE2"),
        ({"name": "a", "regex": "x*"}, "matches the empty text"),
        ({"name": "email", "regex": "x"}, "the name 'email' is taken"),
        ({"name": "An Employee", "regex": "x"}, "pattern"),
        ({"name": "a", "regex": "x", "placeholder": "x1"}, "pattern"),
    ],
)
def test_a_pattern_that_cannot_work_is_refused(pattern: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PiiParams.model_validate({"patterns": [pattern]})


def test_a_pattern_that_blows_up_elsewhere_takes_linear_time() -> None:
    nested = {"name": "a", "regex": "(a+)+b"}
    scrubbed("warm", patterns=[nested])
    start = time.perf_counter()
    assert scrubbed("a" * 300_000, patterns=[nested]) == "a" * 300_000
    assert time.perf_counter() - start < 2


def test_allowed_values_and_domains_stay() -> None:
    text = "Support@Example.org, a@example.org, a@mail.doe.org, a@doe.org.uk, 8.8.8.8, 8.8.4.4, 212-555-0187"
    expected = "Support@Example.org, [EMAIL], a@mail.doe.org, [EMAIL], 8.8.8.8, [IP], 212-555-0187"
    assert scrubbed(text, allow=["support@example.org", "doe.org", "8.8.8.8", "212-555-0187"]) == expected


def test_a_kind_that_is_off_is_left_alone() -> None:
    assert scrubbed("a@b.org 8.8.8.8", kinds=["ip"]) == "a@b.org [IP]"


def test_the_format_replacement_keeps_a_value_of_the_same_format() -> None:
    text = (
        "a@b.org 123-45-6789 8.8.8.8 2606:4700::1111 4111111111111111 GB82WEST12345698765432 +44 20 7946 0958"
    )
    expected = (
        "user@example.com 000-00-0000 192.0.2.1 2001:db8::1 0000-0000-0000-0000 XX00XXXX00000000 202-555-0100"
    )
    assert scrubbed(text, replacement="format") == expected
