"""What a corpus of a given size takes: parts, worker hours, storage, transfer, memory.

An extrapolation of rates that `benchmarks/size.py` measured on 60 MB of English text, on an Intel Xeon at
2.5 GHz that was busy with other work, without transforms, filters, languages or evaluation sets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

VOCAB_SIZE = 32_768  # for which a token, of two bytes, is 4.4 bytes of text
PART_BYTES = 128_000_000
# The process of the run, in bytes for each document: its place, and what is known of it if it has candidates.
LINKS, LINKED = 32, 140
LINK_SECONDS = 8e-7  # for each document, in the process of the run alone (benchmarks/dedup_scale.py)
HOURS = 3600


class Rate(NamedTuple):
    """Of one stage: processor seconds and stored bytes for each MB (1e6 bytes) of text and each document, and
    the stages whose files it reads.
    """

    seconds_per_mb: float
    seconds_per_document: float
    bytes_per_mb: float
    bytes_per_document: float
    reads: Sequence[str] = ()


RATES = {
    "raw": Rate(0.012, 1.1e-5, 380_000, 24),
    "scrubbed": Rate(0.022, 0, 380_000, 24, ("raw",)),
    "quality": Rate(0.024, 1.4e-6, 15_000, 51, ("scrubbed",)),
    "signatures": Rate(0.01, 8.7e-6, 410, 430, ("scrubbed", "quality")),
    "dedup": Rate(0.0032, 3.3e-6, 210, 17, ("signatures",)),
    "token shards": Rate(0.022, 5.4e-6, 450_000, 24, ("scrubbed", "quality", "dedup")),
}


@dataclass(frozen=True)
class Size:
    """One stage, in worker hours and bytes."""

    stage: str
    worker_hours: float
    stored: float
    read: float


def sizes(text_bytes: float, documents: float) -> list[Size]:
    """What each stage takes when no document is removed: an upper bound."""
    megabytes = text_bytes / 1e6

    def stored(stage: str) -> float:
        return RATES[stage].bytes_per_mb * megabytes + RATES[stage].bytes_per_document * documents

    return [
        Size(
            stage,
            (rate.seconds_per_mb * megabytes + rate.seconds_per_document * documents) / HOURS,
            stored(stage),
            sum(map(stored, rate.reads)),
        )
        for stage, rate in RATES.items()
    ]


def lines(
    text_bytes: float, documents: float, workers: int | None, usd_per_hour: float | None
) -> Iterator[str]:
    """The table and what it assumes, for a terminal."""
    found = sizes(text_bytes, documents)
    hours = sum(size.worker_hours for size in found)
    total = Size("all", hours, sum(size.stored for size in found), sum(size.read for size in found))
    parts = -(-text_bytes // PART_BYTES)
    yield f"{amount(text_bytes)} of text, {documents:,.0f} documents, {parts:,.0f} parts of 128 MB"
    yield f"{'stage':<14}{'worker hours':>14}{'stored':>12}{'read':>12}"
    for size in (*found, total):
        hours_of_one = f"{size.worker_hours:,.1f}"
        yield f"{size.stage:<14}{hours_of_one:>14}{amount(size.stored):>12}{amount(size.read):>12}"
    if workers:
        alone = LINK_SECONDS * documents / HOURS
        yield (
            f"at least {hours / workers + alone:,.2f} hours on {workers:,} workers, in {alone:,.2f} of which "
            "the process of the run links duplicates alone"
        )
    if usd_per_hour:
        yield f"{hours * usd_per_hour:,.0f} USD of workers, without storage and transfer"
    memory = LINKS * documents
    yield (
        f"memory of the run: {amount(memory)}, and {amount(LINKED * documents / 10)} more for each tenth of "
        "the documents that has a candidate duplicate"
    )
    yield "Assumed: no document is removed, and cores are like the one that was measured (docs/cluster.md)."
    yield "Left out: reading the source, the texts of candidate duplicates, training the tokenizer."


def amount(number: float) -> str:
    """Bytes in a unit that leaves up to three digits before the point."""
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    steps = next((step for step in range(len(units)) if number < 1000 ** (step + 1)), len(units) - 1)
    return f"{number / 1000**steps:,.1f} {units[steps]}"
