"""Damaged compressed files: what is read of them is what was written."""

import bz2
import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pipeline.sources.formats import compression
from tests.pipeline.sources.reading import documents_and_rejects


def zstd_with_checksum(content: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return compressor.compress(content) + compressor.flush()


@pytest.mark.parametrize("held", [0, compression.HELD_BYTES], ids=["decompressed twice", "held"])
@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        ("gz", gzip.compress),
        ("bz2", lambda data: bz2.compress(data, 1)),
        ("xz", lzma.compress),
        ("zst", zstd_with_checksum),
    ],
)
def test_no_scrambled_text_comes_from_damage_anywhere_in_a_compressed_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    compress: Callable[[bytes], bytes],
    held: int,
) -> None:
    monkeypatch.setattr(compression, "HELD_BYTES", held)
    lines = [json.dumps({"text": " ".join(f"{row * n % 9973}" for n in range(99))}) for row in range(1, 400)]
    first, second = ("\n".join([*half, ""]).encode() for half in (lines[:200], lines[200:]))
    whole, before = compress(first) + compress(second), len(compress(first))
    expected = [json.loads(line)["text"] for line in lines]
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(whole)
    assert [row["text"] for row in documents_and_rejects(path)[0]] == expected
    draw = random.Random(suffix)
    for place in (draw.randrange(before + 12, len(whole)) for _ in range(25)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
        rows, rejects = documents_and_rejects(path)
        found = [row["text"] for row in rows]
        assert len(found) >= 200 and found == expected[: len(found)]
        assert len(found) == len(expected) or [reject.reason for reject in rejects] == ["broken_compression"]
        assert all(0 < reject.lost_bytes <= len(whole) - before for reject in rejects)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt", "html", "mbox"])
def test_a_file_that_unpacks_to_nothing_is_set_aside(tmp_path: Path, kind: str, suffix: str) -> None:
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd_with_checksum}[suffix]
    (tmp_path / f"a.{kind}.{suffix}").write_bytes(pack(b""))
    rows, rejects = documents_and_rejects(tmp_path / f"a.{kind}.{suffix}")
    assert rows == []
    assert [str(one.reason) for one in rejects] == ["empty_file"]
