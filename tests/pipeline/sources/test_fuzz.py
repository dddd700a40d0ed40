"""Files of every format with bytes changed: never more than rows and files set aside."""

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.sources import open_source
from pipeline.sources.files import FilesConfig
from pipeline.sources.source import Rejected

ROWS = [{"id": f"d{row}", "text": f"text {row} é\n{row**9}", "n": row, "day": None} for row in range(40)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def parquet(**settings: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=16, **settings)
    return sink.getvalue()


FILES = {
    "a.jsonl": LINES,
    "a.csv": b"id,text,n\r\n" + b"".join(b'%d,"a ""b""\r\nc",%d\r\n' % (row, row) for row in range(40)),
    "a.txt": b"\xef\xbb\xbfone\r\n\r\ntwo\n" * 20,
    "a.parquet": parquet(),
    "b.parquet": parquet(compression="zstd", data_page_version="2.0", use_dictionary=False),
    **{f"a.jsonl.{suffix}": pack(LINES) for suffix, pack in PACKERS.items()},
}


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with a few bytes set, a piece removed or doubled, or an end cut off."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        length = draw(st.integers(0, 40))
        replacement = draw(st.one_of(st.binary(max_size=8), st.just(bytes(changed[at : at + length]) * 2)))
        changed[at : at + length] = replacement
    return bytes(changed[: draw(st.one_of(st.none(), st.integers(0, len(changed))))])


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_set_aside_and_its_neighbor_read(
    name: str, tmp_path: Path, data: st.DataObject
) -> None:
    (tmp_path / name).write_bytes(data.draw(damaged(FILES[name])))
    (tmp_path / "z.jsonl").write_text('{"text": "neighbor"}\n')
    source = open_source("c", FilesConfig(paths=(str(tmp_path / "*"),)))
    rejects: list[Rejected] = []
    texts = [
        text
        for unit in source.units()
        for batch in source.read(unit, rejects)
        for text in batch.column("text").to_pylist()
    ]
    assert texts[-1] == "neighbor"
    assert all(text.strip() for text in texts)
