"""Reports, with examples, corpora and clusters that lose more than `dedup_guard` allows. Decides nothing."""

from collections.abc import Iterator

import pyarrow.compute as pc

from pipeline.recipe.sections import DedupGuard
from pipeline.steps.dedup.dedup import EXCLUDED
from pipeline.store import keys
from pipeline.store.manifest import Part, Version, breakdown
from pipeline.store.parquet import read_table
from pipeline.store.parts import add

EXAMPLES = 3
REPORT = "largest-1"


def alarms(version: Version, guard: DedupGuard) -> list[str]:
    """One sentence for each corpus and each of the largest clusters that is above its limit."""
    return [*_lost(version, guard.max_lost_share), *_clusters(version, guard.max_cluster_size)]


def by_corpus(version: Version) -> dict[str, dict[str, int]]:
    """The counts of the decisions on each corpus."""
    totals: dict[str, dict[str, int]] = {}
    for part in version.parts:
        add(totals.setdefault(keys.DecidedPart.from_name(part.name).corpus, {}), part.counts)
    return totals


def _lost(version: Version, max_share: float) -> Iterator[str]:
    for corpus, counts in by_corpus(version).items():
        lost = counts["removed"] - counts.get(f"removed/{EXCLUDED}", 0)
        share = lost / max(counts["documents"], 1)
        if share > max_share:
            parts = [part for part in version.parts if keys.DecidedPart.from_name(part.name).corpus == corpus]
            first = next(part for part in parts if part.counts["removed"])
            ids = _ids(version, first, pc.field("keep") == pc.scalar(False))
            most = next(reason for reason in breakdown(counts, "removed") if reason != EXCLUDED)
            yield (
                f"corpus {corpus!r} loses {lost:,} of {counts['documents']:,} documents "
                f"({share:.0%}, the limit is {max_share:.0%}), "
                f"among them {ids}: look at them with `python -m pipeline inspect documents {most} "
                f"--corpus {corpus}`, then change the corpora or raise dedup_guard.max_lost_share"
            )


def _clusters(version: Version, max_size: int) -> Iterator[str]:
    for size, kept, corpus, removed in version.report("largest_clusters", REPORT, lambda: _largest(version)):
        if size > max_size:
            yield (
                f"{kept} of corpus {corpus!r} stands for {size:,} documents (the limit is {max_size:,}), "
                f"among them {removed}: "
                "if they are not duplicates, raise dedup.threshold, else dedup_guard.max_cluster_size"
            )


def largest_clusters(version: Version, number: int) -> list[tuple[int, str, str]]:
    """The kept documents that stand for the most documents: how many each stands for, its id, its corpus."""
    largest: list[tuple[int, str, str]] = []
    shared = pc.field("keep") & (pc.field("cluster") > 1)
    for part in version.parts:
        table = read_table(version.file(part, "decisions"), columns=["id", "cluster"], filters=shared)
        corpus = keys.DecidedPart.from_name(part.name).corpus
        largest += [(row["cluster"], row["id"], corpus) for row in table.to_pylist()]
        largest = sorted(largest, reverse=True)[:number]
    return largest


def _largest(version: Version) -> list[tuple[int, str, str, str]]:
    """The largest clusters, each with the ids of some removed documents from one part."""
    clusters = []
    for size, kept, corpus in largest_clusters(version, EXAMPLES):
        same = pc.field("duplicate_of") == kept
        removed = (_ids(version, part, same) for part in version.parts)
        clusters.append((size, kept, corpus, next(filter(None, removed))))
    return clusters


def _ids(version: Version, part: Part, where: pc.Expression) -> str:
    ids = read_table(version.file(part, "decisions"), columns=["id"], filters=where).column("id")
    return ", ".join(ids.slice(0, EXAMPLES).to_pylist())
