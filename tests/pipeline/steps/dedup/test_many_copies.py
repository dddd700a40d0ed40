"""A text that a corpus repeats a million times."""

import time
from pathlib import Path

import pytest

from pipeline.stages import dedup
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import deduplicate
from tests.pipeline.steps.stored import put


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
    version = deduplicate(store, LocalEngine(workers=1), ["copies"], dedup.DedupParams())
    assert time.process_time() - started < 90
    assert version.counts == {
        "documents": count,
        "kept": 1,
        "removed": count - 1,
        "removed/exact": count - 1,
        "duplicates_of/copies": count - 1,
    }
