"""Corpora that would make a naive dedup take for ever or remove what it should not, through the flow as a run
has it.
"""

import random
import time
from pathlib import Path

import pytest

from pipeline.stages.dedup import DedupParams
from pipeline.steps.dedup.dedup import deduplicate
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.stored import put

ENGINE = LocalEngine(workers=1)


@pytest.mark.slow
def test_a_million_copies_in_many_parts_leave_one_in_bounded_time(tmp_path: Path) -> None:
    count, parts = 1_000_000, 8
    store = Store(tmp_path)
    copies = {
        f"p{part}": {f"{part}-{i}": "the same short page again" for i in range(count // parts)}
        for part in range(parts)
    }
    put(store, "copies", copies, batch_rows=50_000)
    started = time.process_time()
    version = deduplicate(store, ENGINE, ["copies"], DedupParams())
    assert time.process_time() - started < 90
    assert version.counts == {
        "documents": count,
        "kept": 1,
        "removed": count - 1,
        "removed/exact": count - 1,
        "duplicates_of/copies": count - 1,
    }


def test_empty_and_one_word_documents_of_many_parts_are_no_duplicates_of_one_another(tmp_path: Path) -> None:
    store = Store(tmp_path)
    pages = {
        f"p{part}": {f"{part}-{i}": "" if i % 2 else f"word{part * 1000 + i}" for i in range(1000)}
        for part in range(3)
    }
    pages["p0"]["again"] = "Word2000 "
    put(store, "short", pages, batch_rows=500)
    assert deduplicate(store, ENGINE, ["short"], DedupParams()).counts["removed"] == 1


def test_pages_of_one_template_survive_across_parts_and_corpora(tmp_path: Path) -> None:
    generator = random.Random(1)
    frame = [" ".join(f"f{generator.randrange(100_000)}" for _ in range(60)) for _ in range(2)]
    pages = [
        f"{frame[0]} {' '.join(f'w{generator.randrange(100_000)}' for _ in range(120))} {frame[1]}"
        for _ in range(400)
    ]
    store = Store(tmp_path)
    put(store, "a", {"p": {f"a{i}": page for i, page in enumerate(pages[:200])}}, batch_rows=100)
    put(
        store,
        "b",
        {"p": {f"b{i}": page for i, page in enumerate(pages[200:])} | {"copy": pages[0] + " seen"}},
        batch_rows=100,
    )
    version = deduplicate(store, ENGINE, ["a", "b"], DedupParams())
    assert (version.counts["removed"], version.counts["duplicates_of/a"]) == (1, 1)
