"""Which corpora and clusters lose more to deduplication than `dedup_guard` allows, with examples. The limits
change no decision.
"""

from collections.abc import Iterator

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.recipe.check_limits import DedupGuard
from pipeline.store import keys
from pipeline.store.parts import add
from pipeline.store.versions import Part, Version

EXAMPLES = 3
REPORT = "largest-1"


def alarms(version: Version, guard: DedupGuard) -> list[str]:
    """One sentence for each corpus above its limit, and for each of the largest clusters above theirs."""
    return [*_lost(version, guard.max_lost_share), *_clusters(version, guard.max_cluster_size)]


def by_corpus(version: Version) -> dict[str, dict[str, int]]:
    """The counts of the decisions on each corpus."""
    totals: dict[str, dict[str, int]] = {}
    for part in version.parts:
        add(totals.setdefault(keys.decided_corpus(part.name), {}), part.counts)
    return totals


def _lost(version: Version, max_share: float) -> Iterator[str]:
    for corpus, counts in by_corpus(version).items():
        share = counts["removed"] / max(counts["documents"], 1)
        if share > max_share:
            removed = pc.field("keep") == pc.scalar(False)
            parts = [
                part
                for part in version.parts
                if keys.decided_corpus(part.name) == corpus and part.counts["removed"]
            ]
            ids = _ids(version, parts[0], removed)
            yield (
                f"corpus {corpus!r} loses {counts['removed']:,} of {counts['documents']:,} documents "
                f"({share:.0%}, the limit is {max_share:.0%}), "
                f"among them {ids}: look at them with `python -m pipeline inspect near --corpus {corpus}`, "
                "then change the corpora or raise dedup_guard.max_lost_share"
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
    """The documents that stand for most others: how many each stands for, its id and its corpus."""
    found: list[tuple[int, str, str]] = []
    for part in version.parts:
        table = pq.read_table(
            version.file(part, "decisions"),
            columns=["id", "cluster"],
            filters=pc.field("keep") & (pc.field("cluster") > 1),
        )
        corpus = keys.decided_corpus(part.name)
        found += [(row["cluster"], row["id"], corpus) for row in table.to_pylist()]
        found = sorted(found, reverse=True)[:number]
    return found


def _largest(version: Version) -> list[tuple[int, str, str, str]]:
    """The largest clusters, each with ids of some that were removed."""
    clusters = []
    for size, kept, corpus in largest_clusters(version, EXAMPLES):
        same = pc.field("duplicate_of") == kept
        holder = next(
            part
            for part in version.parts
            if pq.read_table(version.file(part, "decisions"), columns=["id"], filters=same).num_rows
        )
        clusters.append((size, kept, corpus, _ids(version, holder, same)))
    return clusters


def _ids(version: Version, part: Part, where: pc.Expression) -> str:
    found = pq.read_table(version.file(part, "decisions"), columns=["id"], filters=where).column("id")
    return ", ".join(found.slice(0, EXAMPLES).to_pylist())
