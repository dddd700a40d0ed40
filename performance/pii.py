"""PII scrubbing with all kinds on, beside four plain patterns (`re`, google-re2), Presidio's pattern
recognizers and datatrove's PIIFormatter.

`python performance/pii.py` needs the sample corpora in ../shared/corpora; peers are measured where
importable, the slow ones on a smaller sample of the same documents. Speeds are medians of processor time on
one core, the contenders taking turns.
"""

import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from harness.processes import peak_mb, scaling
from harness.sidebyside import Contender, Report, importable, measure, record, sample, size_of, texts
from harness.stored import CORPUS, stored
from peers.pii import presidio

from pipeline.stages.pii import PiiKind, PiiParams, scrub
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import scrub as scrub_step

FILES = ("techdocs", "enwiki", "books", "labelled/neardup_articles_2500", "labelled/pii_presidio_synth_v2")
MEGABYTES, BATCH_ROWS = 100, 500

PATTERNS = (
    (rb"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}\b", b"[EMAIL]"),
    (rb"\b(?:\+?1[-. ]?)?\(?[2-9]\d{2}\)?[-. ]\d{3}[-. ]\d{4}\b", b"[PHONE]"),
    (rb"\b\d{3}-\d{2}-\d{4}\b", b"[SSN]"),
    (rb"\b(?:\d{1,3}\.){3}\d{1,3}\b", b"[IP]"),
)


def batches(found: list[str]) -> list[pa.RecordBatch]:
    parts = [found[row : row + BATCH_ROWS] for row in range(0, len(found), BATCH_ROWS)]
    return [
        pa.record_batch(
            {"id": [str(row) for row in range(len(part))], "text": pa.array(part, pa.large_string())}
        )
        for part in parts
    ]


def ours(parts: list[pa.RecordBatch]) -> int:
    return sum(scrub(part, PiiParams())[1].num_rows for part in parts)


def patterns(compile_pattern: Callable[[bytes], Any], found: list[str]) -> Callable[[], None]:
    compiled = [(compile_pattern(pattern), placeholder) for pattern, placeholder in PATTERNS]
    encoded = [text.encode() for text in found]

    def replace() -> None:
        for text in encoded:
            for pattern, placeholder in compiled:
                text = pattern.sub(placeholder, text)

    return replace


def each(call: Callable[[str], object], found: list[str]) -> None:
    for text in found:
        call(text)


def share_of_ours(share: int, shares: int) -> Callable[[], int]:
    return partial(ours, batches(texts(FILES, MEGABYTES)[share::shares]))


def scrub_again(root: Path) -> None:
    scrub_step(Store(root), LocalEngine(1), CORPUS, PiiParams(kinds=tuple(PiiKind)[::-1]))


def main() -> None:
    found = texts(FILES, MEGABYTES)
    parts, some, few = batches(found), sample(found, 10), sample(found, 1)
    contenders = {
        "groundwork, 7 kinds": Contender(size_of(found), partial(ours, parts)),
        "re, 4 plain patterns": Contender(size_of(some), patterns(re.compile, some)),
    }
    if importable("re2"):
        import re2

        contenders["google-re2, 4 plain patterns"] = Contender(size_of(found), patterns(re2.compile, found))
    if importable("datatrove"):
        from datatrove.pipeline.formatters import PIIFormatter

        contenders["datatrove PIIFormatter, 2 kinds"] = Contender(
            size_of(some), partial(each, PIIFormatter().format, some)
        )
    if importable("presidio_analyzer"):
        contenders["presidio pattern recognizers, 6 kinds"] = Contender(
            size_of(few), partial(each, presidio(0), few)
        )
    report: Report = {
        "corpus": {"documents": len(found), "mb": round(size_of(found), 1), "spans": ours(parts)},
        "one_core": measure(contenders, time.process_time),
        "processes": scaling(share_of_ours, size_of(found)),
    }
    with stored(FILES[:3]) as root:
        report["peak_mb_of_a_worker_on_a_stored_part"] = peak_mb(scrub_again, root)
    record("pii", report, ("numba", "pyarrow", "datatrove", "presidio-analyzer"))


if __name__ == "__main__":
    main()
