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


LAYOUTS: dict[str, Callable[[list[str]], str]] = {
    "jsonl": lambda texts: "\n".join(json.dumps({"text": text}) for text in texts),
    "json": lambda texts: json.dumps([{"text": text} for text in texts], indent=1),
    "csv": lambda texts: "".join(f"{line}\n" for line in ["text", *texts]),
    "txt": "\n".join,
    "html": lambda texts: f"<html><body>{''.join(f'<p>{text}</p>' for text in texts)}</body></html>",
    "mbox": lambda texts: "".join(
        f"From a@b Mon Jan  1 00:00:00 2024\nTo: b\n\n{text}\n\n" for text in texts
    ),
}


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", [1, 3, 1000])
def test_all_that_comes_before_the_damage_is_read_however_little_it_is(
    tmp_path: Path, suffix: str, layout: str, number: int
) -> None:
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd_with_checksum}[suffix]
    draw = random.Random(number)
    texts = [f"text {n} of " + " ".join(f"{draw.getrandbits(40):x}" for _ in range(9)) for n in range(number)]
    content = LAYOUTS[layout](texts).encode()
    for whole, damage in ((content, b"no member of a file" * 9), (content + b"\n", pack(content)[:-9])):
        path = tmp_path / f"a.{layout}.{suffix}"
        path.write_bytes(pack(whole) + damage)
        rows, rejects = documents_and_rejects(path)
        read = "\n".join(row["text"] for row in rows)
        assert [text for text in texts if text not in read] == []
        assert [str(one.reason) for one in rejects] == ["broken_compression"]
