"""What holds for any text: same bytes without matches, spans in characters, idempotence, linear time, public
means `ipaddress.is_global`.
"""

import ipaddress
import re
import time

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.stages.pii import SPANS_SCHEMA, PiiKind, PiiParams, scrub
from pipeline.store.params import CONTENT, DOCUMENT_SCHEMA, MARKS, MESSAGE, PAIR, ROLE, ROLES

VALUES = {
    "jo@doe.org": "email",
    "212-555-0187": "phone",
    "+44 20 7946 0958": "phone",
    "123-45-6789": "ssn",
    "8.8.8.8": "ip",
    "2606:4700:4700::1111": "ip",
    "4111 1111 1111 1111": "credit_card",
    "GB82 WEST 1234 5698 7654 32": "iban",
    "AKIAIOSFODNN7EXAMPLE": "secret",
}
PIECES = """
jo@doe.org user@example.com [EMAIL] [PHONE] 1.2.3.4 192.0.2.1 a::1 2001: ::ffff: 0171/1234567 202-555-0100
000-00-0000 123456789 (0) +1 +44 u:p@
4222222222222 378282246310005 eyJhbGciOi.eyJzdWIiOi SECRET0000000000 :// phone call: version and ssn card
fax office x12 ext .com [ ] ( ) @ : / .
- + # = x é 例 § $ % _ 0 12 555
%40 %20 &#64; &# ; \\ \\u0040 \\n \uff20 \uff0d \u2014 \u00ad \u200b \uff11 _415-713-9997_ 10118 4111
(at) [at] <at> (a) [dot] {a,b}@ {jo, } < > email: at dot .org
"""
FRAGMENTS = st.sampled_from(
    [*VALUES, "467 3395", "0490 75 40 81", " ", " at ", "\n", "\u00a0", *PIECES.split()]
)
TEXTS = st.lists(st.one_of(FRAGMENTS, st.text(alphabet="0123456789 -.@:ax[(+", max_size=6)), max_size=14).map(
    "".join
)


def batch(*texts: str) -> pa.RecordBatch:
    columns = [[str(i) for i in range(len(texts))], list(texts), None, None, None]
    arrays = [
        pa.array(values if values is not None else [None] * len(texts), field.type)
        for values, field in zip(columns, DOCUMENT_SCHEMA, strict=True)
    ]
    return pa.record_batch(arrays, schema=DOCUMENT_SCHEMA)


def texts_of(documents: pa.RecordBatch) -> list[str]:
    return documents.column("text").to_pylist()


@given(
    st.lists(st.one_of(TEXTS, st.text(max_size=40)), max_size=5), st.sampled_from(["placeholder", "format"])
)
@settings(max_examples=400, deadline=None)
@example(["version 555.123.4567 and 1.2.3.4", "a@b.org=555-123-4567", "123-45-6789-foo@bar.com"], "format")
def test_scrubbing_twice_equals_scrubbing_once(texts: list[str], replacement: str) -> None:
    params = PiiParams.model_validate({"replacement": replacement})
    once, _ = scrub(batch(*texts), params)
    assert texts_of(scrub(once, params)[0]) == texts_of(once)


@given(st.lists(TEXTS, max_size=5))
@settings(max_examples=100, deadline=None)
def test_the_spans_say_in_characters_what_was_replaced(texts: list[str]) -> None:
    documents, spans = scrub(batch(*texts), PiiParams())
    expected = list(texts)
    rows = spans.to_pylist()
    for row in reversed(rows):
        index = int(row["id"])
        expected[index] = (
            expected[index][: row["start"]] + f"[{row['kind'].upper()}]" + expected[index][row["end"] :]
        )
    assert texts_of(documents) == expected
    assert rows == sorted(rows, key=lambda row: (int(row["id"]), row["start"]))


@given(
    st.text(alphabet="é例🙂 ж\n", max_size=12),
    st.sampled_from(sorted(VALUES)),
    st.text(alphabet="例🙂\n,", max_size=12),
)
@settings(max_examples=100, deadline=None)
def test_characters_of_any_width_around_a_value_do_not_shift_its_span(
    before: str, value: str, after: str
) -> None:
    text = f"{before}\n{value}\n{after}"
    documents, spans = scrub(batch("éé", text), PiiParams())
    start = len(before) + 1
    assert spans.to_pylist() == [
        {"id": "1", "kind": VALUES[value], "start": start, "end": start + len(value)}
    ]
    assert texts_of(documents) == ["éé", text.replace(value, f"[{VALUES[value].upper()}]")]


@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_characters="@:0123456789", exclude_categories=["Cs"])),
        max_size=8,
    )
)
@settings(max_examples=100, deadline=None)
def test_texts_without_personal_data_come_back_as_the_same_bytes(texts: list[str]) -> None:
    documents, spans = scrub(batch(*texts), PiiParams())
    assert documents.equals(batch(*texts))
    assert spans.num_rows == 0
    assert spans.schema == SPANS_SCHEMA


def test_other_columns_and_the_schema_are_untouched_and_no_value_is_in_the_spans() -> None:
    original = batch("none here", "jo@doe.org", "ssn 123-45-6789")
    documents, spans = scrub(original, PiiParams())
    assert documents.schema.equals(original.schema, check_metadata=True)
    assert documents.drop_columns(["text"]).equals(original.drop_columns(["text"]))
    assert spans.schema == SPANS_SCHEMA
    assert set(spans.column("kind").to_pylist()) == {PiiKind.EMAIL, PiiKind.SSN}


@given(st.lists(TEXTS, min_size=1, max_size=6), st.data())
@settings(max_examples=100, deadline=None)
def test_how_documents_are_batched_changes_nothing(texts: list[str], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(texts)))
    whole, spans = scrub(batch(*texts), PiiParams())
    parts = [
        scrub(batch(*texts).slice(start, stop - start), PiiParams())
        for start, stop in ((0, cut), (cut, len(texts)))
    ]
    assert texts_of(whole) == [text for part, _ in parts for text in texts_of(part)]
    assert spans.to_pylist() == [row for _, part in parts for row in part.to_pylist()]


def test_small_strings_and_nulls_keep_their_type_and_place() -> None:
    documents = pa.record_batch(
        {"id": ["a", "b", "c"], "text": pa.array(["jo@doe.org", None, ""], pa.string())}
    )
    scrubbed, _ = scrub(documents, PiiParams())
    assert scrubbed.column("text").equals(pa.array(["[EMAIL]", None, ""], pa.string()))


DISPUTED = """
192.0.0.0/24 64:ff9b:1::/48 2001::/23 2002::/16 3fff::/20 100:0:0:1::/64 5f00::/16
"""


RESERVED = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.2.0/24 192.168.0.0/16
198.18.0.0/15 198.51.100.0/24 203.0.113.0/24
240.0.0.0/4
"""


def is_disputed(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(address in ipaddress.ip_network(block) for block in DISPUTED.split())


def _edges() -> list[int]:
    networks = [ipaddress.IPv4Network(block) for block in RESERVED.split()]
    return [
        edge % 2**32
        for net in networks
        for first, last in [(int(net[0]), int(net[-1]))]
        for edge in (first - 1, first, last, last + 1)
    ]


@given(st.one_of(st.integers(0, 2**32 - 1), st.sampled_from(_edges())))
@settings(max_examples=150, deadline=None)
def test_an_ipv4_address_is_public_when_the_standard_library_says_so(address: int) -> None:
    reference = ipaddress.IPv4Address(address)
    if not is_disputed(reference):
        assert texts_of(scrub(batch(f"host {reference}!"), PiiParams())[0]) == [
            "host [IP]!" if reference.is_global and not reference.is_multicast else f"host {reference}!"
        ]


PREFIXES = [0, 0xFFFF << 32, 0x20010DB8 << 96, 0x20010200 << 96]
PREFIXES += [first << 112 for first in (1, 0x100, 0xFC00, 0xFE80, 0xFEC0, 0xFF02, 0x2606)]


@given(
    st.one_of(
        st.integers(0, 2**128 - 1),
        st.builds(lambda p, n: p + n, st.sampled_from(PREFIXES), st.integers(0, 2**32 - 1)),
    )
)
@settings(max_examples=150, deadline=None)
def test_an_ipv6_address_is_public_when_the_standard_library_says_so(address: int) -> None:
    reference = ipaddress.IPv6Address(address)
    mapped = reference.ipv4_mapped
    if is_disputed(reference) or (mapped is not None and not mapped.is_private and not mapped.is_global):
        return
    public = (mapped or reference).is_global and not (mapped or reference).is_multicast
    assert texts_of(scrub(batch(f"at {reference.exploded}!"), PiiParams())[0]) == [
        "at [IP]!" if public else f"at {reference.exploded}!"
    ]


ADVERSARIAL = {
    "email": [
        "a@",
        "a@a-",
        "@",
        "a.",
        "a@b.c@",
        "ü@",
        "'@b.co",
        "a@b.co:",
        "a(at)",
        "[dot]a",
        "{a,",
        "<a dot ",
    ],
    "phone": [
        "1 - ",
        "1\n",
        "Tel ",
        "<b>1",
        "=1+",
        "555) 1",
        "1 ",
        "+1",
        "(1)",
        "0490 75 ",
        "1-",
        "555-",
        "call 1 ",
        "call 467 ",
        "((",
        "212-555-0187#",
    ],
    "ssn": ["123-45-", "123-45-6789-", "123 45 ", "ssn 123 "],
    "ip": ["1.", "1.2.3.4.", "1:", "::", "a:", "version 1.2.3.4 and ", "1.2.3.4 to ", "1 and ", "2001:db8:"],
    "credit_card": ["4111 ", "4111-", "4", "4111 1111 1111 1111 ", "4111111111111112 "],
    "iban": ["GB82", "GB82 ", "GB82WEST1234569876543 ", "DE89 3704 "],
    "secret": [
        "eyJ",
        "eyJaaaaaaaa.",
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----A",
        "ghp_",
        "sk-",
        "://",
        "://a:",
        "a://b:c",
        "SG.",
        "xoxb-",
        "api_key=",
        "Password=",
        "password:",
        "_token=a1",
        "authorization: bearer 1",
        "EAA1",
        '"auth":"',
        "1:a",
        "SK1",
        "_",
        "-",
    ],
}


@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_time_is_linear_in_adversarial_text_of_a_megabyte(kind: str) -> None:
    scrub(batch("warm"), PiiParams())
    for piece in ADVERSARIAL[kind]:
        for text in (
            piece * (1_000_000 // len(piece)),
            "a@" + piece * (1_000_000 // len(piece)),
            piece + "a" * 500_000 + piece + "1" * 500_000,
            piece * 40_000 + "8.8.8.8",
        ):
            start = time.process_time()
            scrub(batch(text), PiiParams())
            assert time.process_time() - start < 2, f"{kind}: {text[:40]!r} took more than 2 s for 1 MB"


OWN = [
    {"name": "rest", "regex": r"phone.*"},
    {"name": "spaced", "regex": r"\s+x\s*"},
    {"name": "role", "regex": "user"},
]


@given(
    st.lists(st.lists(st.tuples(st.sampled_from(ROLES), TEXTS), min_size=1, max_size=4), max_size=3),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_no_mark_of_a_conversation_is_lost_or_joined_to_a_value(
    talks: list[list[tuple[str, str]]], own: bool
) -> None:
    params = PiiParams.model_validate({"ip": "all", "patterns": OWN if own else []})
    marked = [
        [(f"{PAIR * (n == 2)}{MESSAGE}{role}{CONTENT}", said) for n, (role, said) in enumerate(talk)]
        for talk in talks
    ]
    texts = ["".join(map("".join, talk)) for talk in marked]
    documents, spans = scrub(batch(*texts), params)
    found = texts_of(documents)
    assert [re.findall(ROLE, text) for text in found] == [[mark for mark, _ in talk] for talk in marked]
    assert texts_of(scrub(documents, params)[0]) == found
    for row in spans.to_pylist():
        assert not set(texts[int(row["id"])][row["start"] : row["end"]]) & set(MARKS)
