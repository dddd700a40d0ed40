"""What the UI shows of dedup: numbers of the tables, clusters that a person should look at."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.reports import dedup
from pipeline.stages.dedup import DedupParams
from pipeline.store.engines.local import LocalEngine
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import TEXTS
from tests.pipeline.steps.make import deduplicate
from tests.pipeline.steps.stored import put


@pytest.fixture
def made(tmp_path: Path) -> tuple[Store, Version]:
    """`docs` holds one text four times (once edited); `web` has two texts of `docs` and a pair of its own."""
    store = Store(tmp_path / "store")
    put(
        store,
        "docs",
        {
            "p": {"d0": TEXTS[0], "d1": TEXTS[0], "d2": TEXTS[0] + " More.", "d3": TEXTS[1]},
            "q": {"d4": TEXTS[0], "d5": TEXTS[2]},
        },
    )
    put(
        store,
        "web",
        {"p": {"w0": TEXTS[1], "w1": TEXTS[3], "w2": TEXTS[3], "w3": TEXTS[2] + " Slightly longer."}},
    )
    return store, deduplicate(store, LocalEngine(workers=1), ["docs", "web"], DedupParams())


def test_the_matrix_says_which_corpus_lost_to_which(made: tuple[Store, Version]) -> None:
    matrix = dedup.between(made[1], ["docs", "web"])
    assert matrix.tolist() == [[3, 0], [2, 1]]
    assert matrix.sum() == made[1].counts["removed"]


def test_the_histogram_holds_the_near_duplicates_by_their_similarity(made: tuple[Store, Version]) -> None:
    counts = dedup.similarities(made[1])
    assert counts.sum() == made[1].counts["removed/near"] == 4
    assert not counts[: int(0.8 * dedup.BINS)].any()


def test_the_largest_cluster_comes_first_with_what_it_says(made: tuple[Store, Version]) -> None:
    clusters = dedup.largest(*made)
    assert [cluster["size"] for cluster in clusters] == [4, 2, 2, 2]
    first = clusters[0]
    assert (first["corpus"], first["id"], first["jaccard"] < 1) == ("docs", "d2", True)
    assert first["text"] == first["removed_text"] == " ".join(TEXTS[0].split())[: dedup.SNIPPET]


def test_a_picture_of_nothing_removed_is_drawn_too() -> None:
    png = dedup.draw(np.zeros(dedup.BINS, np.int64), np.zeros((2, 2), np.int64), ["a", "b"])
    assert png.startswith(b"\x89PNG")
