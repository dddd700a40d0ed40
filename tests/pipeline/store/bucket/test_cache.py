"""The record of a cache, which all threads of a process write."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from pipeline.store.bucket.cache import NAME, Cache


def test_threads_that_upload_at_once_record_each_of_their_files(tmp_path: Path) -> None:
    """On Python 3.13, two threads must not use one connection at once."""
    paths = [tmp_path / f"{number}.bin" for number in range(400)]
    for path in paths:
        path.write_bytes(bytes(1000))
    cache = Cache(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(cache.add, paths))
        list(threads.map(cache.forget, paths[::2]))
    with closing(sqlite3.connect(tmp_path / NAME)) as table:
        assert table.execute("select count(*), sum(bytes) from files").fetchall() == [(200, 200_000)]
