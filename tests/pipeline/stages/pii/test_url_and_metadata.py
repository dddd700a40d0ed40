"""URL and metadata lose what the text loses, and metadata stays JSON."""

import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.stages.pii import PiiParams, scrub_fields
from pipeline.store.params import DOCUMENT_SCHEMA

VALUES = [
    "jo@doe.org",
    "212-555-0187",
    "123-45-6789",
    "8.8.8.8",
    "4111111111111111",
    "GB82WEST12345698765432",
]


def fields(
    url: str | None, metadata: str | None, **params: object
) -> tuple[str | None, str | None, dict[str, int]]:
    row = {"id": "a", "text": "", "source": "s", "url": url, "metadata": metadata}
    batch = pa.RecordBatch.from_pylist([row], DOCUMENT_SCHEMA)
    documents, counts = scrub_fields(batch, PiiParams.model_validate(params))
    assert documents.schema.equals(DOCUMENT_SCHEMA)
    (scrubbed,) = documents.to_pylist()
    return scrubbed["url"], scrubbed["metadata"], counts


def test_values_in_strings_keys_and_numbers_go_and_the_rest_stays() -> None:
    metadata = {
        "author": 'Jo "the pen" <jo@doe.org>\n212-555-0187',
        "jo@doe.org": [1, 2.5, None, True, "x"],
        "card": 4111111111111111,
        "phone": "4673395",
        "by": {"ssn": 123456789, "votes": 123456789},
        "score": -0.25,
    }
    expected = {
        "author": 'Jo "the pen" <[EMAIL]>\n[PHONE]',
        "[EMAIL]": [1, 2.5, None, True, "x"],
        "card": "[CREDIT_CARD]",
        "phone": "[PHONE]",
        "by": {"ssn": "[SSN]", "votes": 123456789},
        "score": -0.25,
    }
    for text in (json.dumps(metadata), json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)):
        _, scrubbed, counts = fields(None, text)
        assert json.loads(scrubbed or "") == expected
        assert counts == {"url": 0, "metadata": 6}


def test_metadata_without_personal_data_comes_back_as_the_same_bytes() -> None:
    for text in ('{ "a" :"\\u00e9\\u0020b", "n":1.0 }', "{}", "", None, "no JSON"):
        assert fields("https://doe.org/a%40b", text) == (
            "https://doe.org/a%40b",
            text,
            {"url": 0, "metadata": 0},
        )


def test_values_behind_escapes_of_json_are_found() -> None:
    _, scrubbed, _ = fields(None, '{"a": "jo\\u0040doe.org", "b": "j\\u00fcrgen@doe.org \\ud83d\\ude42"}')
    assert json.loads(scrubbed or "") == {"a": "[EMAIL]", "b": "[EMAIL] 🙂"}


def test_metadata_that_is_no_json_is_scrubbed_as_text() -> None:
    assert fields(None, "by jo@doe.org {")[1] == "by [EMAIL] {"


def test_a_url_loses_addresses_and_credentials() -> None:
    url = "https://me:s3cret@93.184.216.34/u?to=jo%40doe.org&x=1"
    assert fields(url, None) == ("https://[SECRET]@[IP]/u?to=[EMAIL]&x=1", None, {"url": 3, "metadata": 0})


def test_a_pattern_that_crosses_strings_keeps_the_json() -> None:
    crossing = {"name": "all", "regex": r'[a-z]+"?: *"?[a-z0-9\\]+'}
    _, scrubbed, _ = fields(None, '{"a": "b\\n", "c": 12, "d": {"e": null}}', patterns=[crossing])
    assert isinstance(json.loads(scrubbed or ""), dict)


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
        st.tuples(st.text(max_size=4), st.sampled_from(VALUES), st.text(max_size=4)).map("".join),
        st.sampled_from([4111111111111111, 2125550187]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.text(max_size=6), st.sampled_from([*VALUES, "phone", "card"])), inner, max_size=4
        ),
    ),
    max_leaves=8,
)


def shape(value: object) -> object:
    """The structure alone, with leaves left out."""
    if isinstance(value, dict):
        return [shape(one) for one in value.values()]
    return list(map(shape, value)) if isinstance(value, list) else None


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4), st.booleans())
@settings(max_examples=80, deadline=None)
def test_metadata_keeps_its_structure_and_scrubbing_it_again_changes_nothing(
    metadata: dict[str, object], ascii_only: bool
) -> None:
    _, scrubbed, _ = fields(
        None, json.dumps(metadata, ensure_ascii=ascii_only).encode("utf-8", "replace").decode()
    )
    pairs = json.loads(
        scrubbed or "", object_pairs_hook=lambda pairs: {str(i): v for i, (_, v) in enumerate(pairs)}
    )
    assert shape(pairs) == shape(metadata)
    assert fields(None, scrubbed)[1] == scrubbed
