"""The exact answer for dedup: similar pairs by label or by comparison, and the score of a set of removals."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from harness.dedup_corpus import batch
from harness.sidebyside import CORPORA, Report, documents
from pipeline.stages.dedup import DedupParams, shingle_sets
from tests.pipeline.stages.dedup.in_memory import jaccard

ARTICLES = "labelled/neardup_articles_2500"
Similar = dict[int, set[int]]


def labelled(threshold: float) -> tuple[list[str], Similar]:
    """Articles and all their pairs of at least this Jaccard similarity, which others published."""
    texts = {row["id"]: row["text"] for row in documents(ARTICLES)}
    rows = {name: row for row, name in enumerate(texts)}
    similar: Similar = defaultdict(set)
    for line in (CORPORA / f"{ARTICLES}.pairs.jsonl").read_text().splitlines():
        pair = json.loads(line)
        if pair["jaccard"] >= threshold:
            similar[rows[pair["a"]]].add(rows[pair["b"]])
            similar[rows[pair["b"]]].add(rows[pair["a"]])
    return list(texts.values()), similar


def similar_pairs(texts: Sequence[str], params: DedupParams) -> Similar:
    """All pairs at the threshold without LSH: both sets share one of their rarest (1 - threshold) |A| + 1."""
    sets = shingle_sets(batch(texts), params)
    rows = [sets.hashes[start:end] for start, end in zip(sets.offsets[:-1], sets.offsets[1:], strict=True)]
    _, inverse, counts = np.unique(sets.hashes, return_inverse=True, return_counts=True)
    frequency = counts[inverse]
    index: dict[int, list[int]] = defaultdict(list)
    similar: Similar = defaultdict(set)
    for i, row in enumerate(rows):
        rarest = np.lexsort((row, frequency[sets.offsets[i] : sets.offsets[i + 1]]))[
            : int((1 - params.threshold) * len(row) + 1e-9) + 1
        ]
        met = {other for value in row[rarest].tolist() for other in index[value]}
        for other in met:
            if jaccard(rows[other], row) >= params.threshold:
                similar[i].add(other)
                similar[other].add(i)
        for value in row[rarest].tolist():
            index[value].append(i)
    return similar


def quality(
    removals: Mapping[str, Callable[[list[str]], set[int]]], texts: list[str], similar: Similar
) -> Report:
    """Precision: the share of removals with a similar document kept; recall: of removables, those removed."""
    return {name: _scores(remove(texts), similar) for name, remove in removals.items()}


def _scores(removed: set[int], similar: Similar) -> Report:
    right = sum(bool(similar.get(i, set()) - removed) for i in removed)
    kept: set[int] = set()
    for i in sorted(similar):
        if i not in removed and not similar[i] & kept:
            kept.add(i)
    missed = sum(i not in removed and i not in kept for i in similar)
    return {
        "removed": len(removed),
        "precision": round(right / max(len(removed), 1), 4),
        "recall": round(right / max(right + missed, 1), 4),
    }
