"""The duplicates that dedup removed: their similarity, their corpora, and the largest clusters with text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.reports import rejections
from pipeline.reports.images import as_text
from pipeline.steps.dedup.dedup import DUPLICATES_OF
from pipeline.steps.dedup.limits import by_corpus, largest_clusters
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.parquet import beginnings, read_table
from pipeline.store.store import Store
from trainer.system import figures
from trainer.system.wording import counted

REPORT = "dedup-2"
BINS = 50
CLUSTERS, PAIRS = 5, 3
SNIPPET = 160


def report(store: Store, version: Version, corpora: Sequence[str]) -> dict[str, Any]:
    """`png`, and the `largest` clusters as rows. Made once for each version."""

    def make() -> dict[str, Any]:
        drawing = draw(similarities(version), between(version, corpora), corpora)
        return {"png": as_text(drawing), "largest": largest(store, version)}

    return version.report("dedup", [REPORT, list(corpora)], make)


def similarities(version: Version) -> np.ndarray:
    """Near duplicates by Jaccard similarity, in BINS equal ranges from 0 to 1."""
    counts = np.zeros(BINS, np.int64)
    for path in version.files("decisions"):
        near = read_table(path, columns=["jaccard"], filters=pc.field("reason") == "near")
        counts += np.histogram(near.column("jaccard").to_numpy(), BINS, (0, 1))[0]
    return counts


def between(version: Version, corpora: Sequence[str]) -> np.ndarray:
    """Duplicates that each corpus (row) lost to a document of each corpus (column)."""
    counts = by_corpus(version)
    return np.array(
        [[counts.get(lost, {}).get(f"{DUPLICATES_OF}/{kept}", 0) for kept in corpora] for lost in corpora],
        np.int64,
    )


def largest(store: Store, version: Version) -> list[dict[str, Any]]:
    """The clusters with most documents: the kept document, and one that was removed for it."""
    clusters = largest_clusters(version, CLUSTERS)
    examples = _examples(version, [kept for _, kept, _ in clusters])
    corpora = [corpus for _, _, corpus in clusters] + [corpus for corpus, _, _ in examples.values()]
    texts = _beginnings(store, corpora, [*examples, *(removed for _, removed, _ in examples.values())])
    rows = []
    for size, kept, corpus in clusters:
        removed_corpus, removed, jaccard = examples[kept]
        rows.append(
            {
                "corpus": corpus,
                "id": kept,
                "size": size,
                "text": texts[kept],
                "removed_corpus": removed_corpus,
                "removed_id": removed,
                "removed_text": texts[removed],
                "jaccard": jaccard,
            }
        )
    return rows


def _examples(version: Version, kept: Sequence[str]) -> dict[str, tuple[str, str, float]]:
    """The least similar removed duplicate of each kept document: corpus, id, Jaccard."""
    examples: dict[str, tuple[str, str, float]] = {}
    for part in version.parts:
        where = pc.field("duplicate_of").isin(pa.array(kept, pa.string()))
        for row in read_table(
            version.file(part, "decisions"), columns=["id", "duplicate_of", "jaccard"], filters=where
        ).to_pylist():
            if row["jaccard"] < examples.get(row["duplicate_of"], ("", "", 2.0))[2]:
                corpus = keys.DecidedPart.from_name(part.name).corpus
                examples[row["duplicate_of"]] = corpus, row["id"], row["jaccard"]
    return examples


def near_pairs(store: Store, corpora: Sequence[str]) -> list[dict[str, Any]]:
    """Some near duplicates, drawn at random: `jaccard`, and the beginnings of `removed` and of `kept`."""
    decisions = rejections.stored(store, [""], lambda _: keys.DEDUP, "decisions")
    drawn = rejections.Draw(PAIRS).rows(decisions, pc.field("reason") == "near")
    pairs = [row for _, rows in drawn for row in rows]
    texts = _beginnings(store, corpora, [pair[name] for pair in pairs for name in ("id", "duplicate_of")])
    return [pair | {"removed": texts[pair["id"]], "kept": texts[pair["duplicate_of"]]} for pair in pairs]


def _beginnings(store: Store, corpora: Sequence[str], ids: Sequence[str]) -> dict[str, str]:
    """The beginning of the scrubbed text of these documents, on one line."""
    texts: dict[str, str] = {}
    for corpus in sorted(set(corpora)):
        for file in store.current(keys.scrubbed(corpus)).files("documents"):
            texts |= beginnings(file, ids, 2 * SNIPPET)
    return {name: " ".join(text.split())[:SNIPPET] for name, text in texts.items()}


def draw(counts: np.ndarray, matrix: np.ndarray, corpora: Sequence[str]) -> bytes:
    """A PNG: the similarities of near duplicates, and the duplicates between corpora."""
    drawing = figures.figure(10, 4.2)
    bars, table = drawing.subplots(1, 2, width_ratios=(3, 2))
    first = int(np.flatnonzero(counts)[0]) if counts.any() else BINS // 2
    edges = np.linspace(0, 1, BINS + 1)[first:]
    bars.bar(edges[:-1], counts[first:], 1 / BINS, align="edge", color=figures.COLORS[0], edgecolor="white")
    bars.set(
        xlabel="exact Jaccard similarity to the document that stays",
        ylabel="documents",
        title=counted(counts.sum(), "near duplicates"),
    )
    bars.grid(axis="y", alpha=0.25)
    bars.set_axisbelow(True)
    table.imshow(np.log1p(matrix), cmap="Blues", vmin=0)
    table.set_xticks(range(len(corpora)), corpora, rotation=30, ha="right")
    table.set_yticks(range(len(corpora)), corpora)
    table.set(
        xlabel="for a document of",
        ylabel="removed from",
        title=f"{counted(matrix.sum(), 'duplicates')}, exact and near",
    )
    for (row, column), number in np.ndenumerate(matrix):
        dark = number and np.log1p(number) > 0.6 * np.log1p(matrix.max())
        color = "white" if dark else "black"
        table.text(column, row, f"{number:,}", ha="center", va="center", color=color)
    return figures.png(drawing)
