"""Recall and precision of exact spans on labeled sentences: ours, Presidio's pattern recognizers,
datatrove's formatter.

`python performance/pii_labelled.py` needs ../shared/corpora/labelled; peers are measured where importable.
Presidio is given once with all that it finds, as its engine does by default, and once from a score of 0.4.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from harness.sidebyside import Report, documents, importable, record
from peers.pii import Span, datatrove, presidio

from pipeline.stages.pii import PiiParams, scrub

SENTENCES = "labelled/pii_presidio_synth_v2"
LABELS = {
    "EMAIL_ADDRESS": "email",
    "IP_ADDRESS": "ip",
    "US_SSN": "ssn",
    "IBAN_CODE": "iban",
    "CREDIT_CARD": "credit_card",
    "PHONE_NUMBER": "phone",
}

Found = set[tuple[str, *Span]]  # with the sentence's id


def labelled(rows: Iterable[dict[str, Any]]) -> Found:
    return {
        (row["id"], LABELS[span["label"]], span["start"], span["end"])
        for row in rows
        for span in row["spans"]
        if span["label"] in LABELS
    }


def ours(rows: list[dict[str, Any]]) -> Found:
    batch = pa.record_batch(
        {
            "id": [row["id"] for row in rows],
            "text": pa.array([row["text"] for row in rows], pa.large_string()),
        }
    )
    return {
        (span["id"], span["kind"], span["start"], span["end"])
        for span in scrub(batch, PiiParams())[1].to_pylist()
    }


def score(expected: Found, found: Found, kind: str) -> Report:
    wanted, got = ({span for span in side if span[1] == kind} for side in (expected, found))
    right = len(wanted & got)
    return {
        "labelled": len(wanted),
        "recall": round(right / len(wanted), 4),
        "precision": round(right / len(got), 4) if got else None,
    }


def main() -> None:
    rows = list(documents(SENTENCES))
    found = {"groundwork": ours(rows)}
    finders = {}
    if importable("presidio_analyzer"):
        finders |= {"presidio, all scores": presidio(0), "presidio, scores from 0.4": presidio(0.4)}
    if importable("datatrove"):
        finders["datatrove"] = datatrove()
    for name, find in finders.items():
        found[name] = {(row["id"], *span) for row in rows for span in find(row["text"])}
    expected = labelled(rows)
    table = {
        kind: {name: score(expected, spans, kind) for name, spans in found.items()}
        for kind in LABELS.values()
    }
    record("pii_labelled", {"sentences": len(rows), "exact spans": table}, ("presidio-analyzer", "datatrove"))
    print(f"\n{'recall / precision':<20}" + "".join(f"{name:>28}" for name in found))
    for kind, scores in table.items():
        cells = (
            f"{one['recall']:.3f} / " + ("-" if one["precision"] is None else f"{one['precision']:.3f}")
            for one in scores.values()
        )
        print(f"{kind:<20}" + "".join(f"{cell:>28}" for cell in cells))


if __name__ == "__main__":
    main()
