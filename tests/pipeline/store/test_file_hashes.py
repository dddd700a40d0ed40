"""Hashes remembered by size, times and inode: right for every change that a file system shows."""

import os
import time
from pathlib import Path

import pytest

from pipeline.store.file_hashes import NAME, FileHashes
from pipeline.store.fingerprint import file_sha256

OLD = time.time() - 100


def aged(path: Path, content: bytes, age: float = OLD) -> Path:
    path.write_bytes(content)
    os.utime(path, (age, age))
    return path


def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    read: list[Path] = []
    monkeypatch.setattr(
        "pipeline.store.file_hashes.file_sha256", lambda path: read.append(path) or file_sha256(path)
    )  # type: ignore[func-returns-value]
    return read


def test_an_unchanged_file_is_not_read_again_and_a_changed_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = aged(tmp_path / "a", b"one"), reads(monkeypatch)
    store = tmp_path / "store"
    assert [FileHashes(store).sha256(path) for _ in range(3)] == [file_sha256(path)] * 3
    assert len(read) == 1
    aged(path, b"two", OLD + 1)
    assert FileHashes(store).sha256(path) == file_sha256(path)
    aged(tmp_path / "b", b"six", OLD + 1).replace(path)
    assert FileHashes(store).sha256(path) == file_sha256(path)
    assert len(read) == 3
    stat = path.stat()
    path.write_bytes(b"ten")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # size, modification time and inode as before
    assert FileHashes(store).sha256(path) == file_sha256(path)
    assert len(read) == 4


def test_a_file_written_just_now_is_not_trusted(tmp_path: Path) -> None:
    path, now = tmp_path / "a", time.time()
    before = FileHashes(tmp_path).sha256(aged(path, b"one", now))
    assert FileHashes(tmp_path).sha256(aged(path, b"two", now)) == file_sha256(path) != before


def test_a_file_that_went_is_an_error_and_not_its_last_hash(tmp_path: Path) -> None:
    path = aged(tmp_path / "a", b"one")
    FileHashes(tmp_path).sha256(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        FileHashes(tmp_path).sha256(path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "something else"])
def test_a_damaged_cache_is_made_anew_with_a_warning(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = [aged(tmp_path / f"file-{number}", b"%d" % number) for number in range(200)]
    hashes = FileHashes(tmp_path)
    before = [hashes.sha256(path) for path in files]
    cache = tmp_path / NAME
    content = bytearray(cache.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    cache.write_bytes({"cut": content[:6000], "flipped": content, "something else": b"hello" * 99}[damage])
    again = FileHashes(tmp_path)
    assert [again.sha256(path) for path in files] == before
    assert f"{cache} is damaged" in caplog.text


def test_a_folder_whose_link_was_changed_has_the_files_that_it_leads_to(tmp_path: Path) -> None:
    hashes, link = FileHashes(tmp_path / "store"), tmp_path / "link"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        path = aged(tmp_path / name / "a.txt", name.encode())
        link.unlink(missing_ok=True)
        link.symlink_to(name)
        assert hashes.sha256(link / "a.txt") == file_sha256(path)
    assert [*hashes.remembered(tmp_path / "one")] == [*hashes.remembered(tmp_path / "two")] == ["a.txt"]
