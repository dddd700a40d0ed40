"""Dedup of real articles, whose similar pairs are known."""

import io
import json
import re
from pathlib import Path

import pytest
import zstandard

from pipeline.stages.dedup import DedupParams, shingle_sets
from tests.corpora import CORPORA, needs_corpora
from tests.pipeline.stages.dedup.in_memory import deduplicate, jaccard
from tests.rows import documents

pytestmark = needs_corpora


def documents_of(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        return {row["id"]: row["text"] for row in map(json.loads, lines)}


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
    """The published one takes `_` for a letter, which articles have between words in place of a dash."""
    for pair in pairs:
        both = {name: articles[name] for name in (pair["a"], pair["b"])}
        sets = shingle_sets(documents(*both.values(), ids=list(both)), DedupParams())
        published, within = pair["jaccard"], 5e-5
        if "_" in "".join(both.values()):
            published, within = in_python(*both.values()), 1e-9
        assert jaccard(sets.hashes[: sets.offsets[1]], sets.hashes[sets.offsets[1] :]) == pytest.approx(
            published, abs=within
        )


def in_python(*texts: str) -> float:
    ours, theirs = (
        {tuple(words[i : i + 5]) for i in range(len(words) - 4)}
        for words in (re.findall(r"[^\W_]+", text.casefold()) for text in texts)
    )
    return len(ours & theirs) / len(ours | theirs)


def test_every_labelled_duplicate_goes_and_nothing_else(articles, pairs):
    removed = {
        (row["duplicate_of"], row["id"])
        for row in deduplicate(
            [documents(*articles.values(), ids=list(articles))], [0], DedupParams()
        ).to_pylist()
        if not row["keep"]
    }
    similar = {frozenset((pair["a"], pair["b"])) for pair in pairs if pair["jaccard"] >= 0.8}
    assert {frozenset(pair) for pair in removed} <= similar
    # No article of this set is in two pairs, so that one of each pair is removable.
    assert len(removed) >= 0.98 * len(similar) == 0.98 * len({name for pair in similar for name in pair}) / 2
