"""Recall and precision on labeled sentences (seen while the rules were written, so a floor and no estimate),
and real text left alone.
"""

import io
import json
from collections import defaultdict

import pyarrow as pa
import pytest
import zstandard

from pipeline.stages.pii import PiiParams, scrub
from tests.corpora import CORPORA, needs_corpora
from tests.rows import documents

pytestmark = needs_corpora

LABELS = {
    "EMAIL_ADDRESS": "email",
    "PHONE_NUMBER": "phone",
    "US_SSN": "ssn",
    "IP_ADDRESS": "ip",
    "CREDIT_CARD": "credit_card",
    "IBAN_CODE": "iban",
}
FLOORS = {
    "email": (0.97, 0.97),
    "ip": (0.97, 0.97),
    "ssn": (0.97, 0.97),
    "iban": (0.97, 0.97),
    "credit_card": (0.90, 0.95),
    "phone": (0.90, 0.95),
}


def rows_of(name: str) -> list[dict]:
    with zstandard.open(CORPORA / name, "rb") as stream:
        return [json.loads(line) for line in io.TextIOWrapper(stream, encoding="utf-8")]


def batch_of(rows: list[dict]) -> pa.RecordBatch:
    return documents(*(row["text"] for row in rows), ids=[row["id"] for row in rows])


@pytest.fixture(scope="module")
def spans_by_kind() -> tuple[dict[str, set], dict[str, set]]:
    rows = rows_of("labelled/pii_presidio_synth_v2.jsonl.zst")
    expected, found = defaultdict(set), defaultdict(set)
    for row in rows:
        for span in row["spans"]:
            expected[LABELS.get(span["label"])].add((row["id"], span["start"], span["end"]))
    for row in scrub(batch_of(rows), PiiParams())[1].to_pylist():
        found[row["kind"]].add((row["id"], row["start"], row["end"]))
    return expected, found


@pytest.mark.parametrize("kind", FLOORS)
def test_exact_spans_reach_the_floors_of_recall_and_precision(
    kind: str, spans_by_kind: tuple[dict[str, set], dict[str, set]]
) -> None:
    expected, found = (side[kind] for side in spans_by_kind)
    right = len(expected & found)
    least_recall, least_precision = FLOORS[kind]
    assert right / len(expected) >= least_recall
    assert right / len(found) >= least_precision


def test_no_secret_is_seen_in_sentences_that_hold_none(
    spans_by_kind: tuple[dict[str, set], dict[str, set]],
) -> None:
    assert spans_by_kind[1]["secret"] == set()


def test_novels_full_of_numbers_come_back_as_they_were() -> None:
    books = batch_of(rows_of("books.jsonl.zst")[:8])
    documents, spans = scrub(books, PiiParams())
    assert spans.num_rows == 0
    assert documents.equals(books)
