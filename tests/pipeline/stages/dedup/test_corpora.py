"""Dedup of real articles, whose similar pairs are known."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from pipeline.stages.dedup import DedupParams, shingle_sets
from tests.corpora import CORPORA, needs_corpora
from tests.pipeline.stages.dedup.in_memory import deduplicate, jaccard

pytestmark = needs_corpora


def documents_of(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        return {row["id"]: row["text"] for row in map(json.loads, lines)}


def batch(texts: dict[str, str]) -> pa.RecordBatch:
    return pa.record_batch({"id": list(texts), "text": pa.array(list(texts.values()), pa.large_string())})


@pytest.fixture(scope="module")
def articles() -> dict[str, str]:
    return documents_of(CORPORA / "labelled" / "neardup_articles_2500.jsonl.zst")


@pytest.fixture(scope="module")
def pairs() -> list[dict]:
    return [
        json.loads(line)
        for line in (CORPORA / "labelled" / "neardup_articles_2500.pairs.jsonl").read_text().splitlines()
    ]


def test_the_exact_similarity_of_every_labelled_pair_is_the_published_one(articles, pairs):
    for pair in pairs:
        sets = shingle_sets(batch({name: articles[name] for name in (pair["a"], pair["b"])}), DedupParams())
        assert jaccard(sets.hashes[: sets.offsets[1]], sets.hashes[sets.offsets[1] :]) == pytest.approx(
            pair["jaccard"], abs=5e-5
        )


def test_every_labelled_duplicate_goes_and_nothing_else(articles, pairs):
    removed = {
        (row["duplicate_of"], row["id"])
        for row in deduplicate([batch(articles)], [0], DedupParams()).to_pylist()
        if not row["keep"]
    }
    similar = {frozenset((pair["a"], pair["b"])) for pair in pairs if pair["jaccard"] >= 0.8}
    assert {frozenset(pair) for pair in removed} <= similar
    # No article of this set is in two pairs, so that one of each pair is removable.
    assert len(removed) >= 0.98 * len(similar) == 0.98 * len({name for pair in similar for name in pair}) / 2


def edited(text: str, generator: np.random.Generator) -> str:
    """The text with runs of words left out, doubled or changed, a few per cent of it."""
    words = text.split(" ")
    for _ in range(int(generator.integers(1, 4))):
        at, size = int(generator.integers(len(words))), 1 + int(len(words) * generator.uniform(0, 0.05))
        words[at : at + size] = [[], words[at : at + size] * 2, ["changed"] * size][
            int(generator.integers(3))
        ]
    return " ".join(words)


def test_injected_edits_of_an_encyclopedia_are_found_as_its_exact_similarities_say():
    generator = np.random.default_rng(0)
    texts = {
        name: text[:20_000]
        for name, text in list(documents_of(CORPORA / "enwiki.jsonl.zst").items())[:600]
        if len(text) > 400
    }
    originals = list(texts)
    family = {name: name for name in originals}
    for i in range(400):
        family[f"edit-{i}"] = originals[int(generator.integers(len(originals)))]
        texts[f"edit-{i}"] = edited(texts[family[f"edit-{i}"]], generator)
    shingles = {name: shingles_of(text) for name, text in texts.items()}
    rows = deduplicate([batch(texts)], [0], DedupParams()).to_pylist()
    kept = [row["id"] for row in rows if row["keep"]]
    for row in rows:
        if not row["keep"]:
            # `\w+` breaks a word at a combining mark and ours does not: a few articles quote such scripts.
            assert row["jaccard"] == pytest.approx(
                similarity(shingles[row["id"]], shingles[row["duplicate_of"]]), abs=1e-3
            )
            assert row["jaccard"] >= 0.8
    missed = sum(
        any(family[a] == family[b] and similarity(shingles[a], shingles[b]) >= 0.8 for b in kept[:i])
        for i, a in enumerate(kept)
    )
    removed = len(rows) - len(kept)
    assert removed > 200
    assert removed >= 0.98 * (removed + missed)


def shingles_of(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return set(zip(*(words[i:] for i in range(5)), strict=False)) if len(words) >= 5 else {(text,)}


def similarity(left: set, right: set) -> float:
    return len(left & right) / len(left | right)
