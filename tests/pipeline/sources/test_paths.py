"""Which files a source finds, and how they are named."""

import glob
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.sources import open_source
from pipeline.sources.files import FilesConfig
from pipeline.sources.listing import listed
from pipeline.sources.source import SourceError
from pipeline.store.file_hashes import FileHashes
from tests.pipeline.sources.test_files import read, texts, units
from tests.rows import jsonl


def test_names_do_not_depend_on_where_the_corpus_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jsonl(tmp_path / "data" / "x" / "a.jsonl", {"text": "t"})
    absolute = read(tmp_path / "data" / "**" / "*.jsonl")[0]
    monkeypatch.chdir(tmp_path)
    assert read("data/**/*.jsonl")[0] == absolute
    assert [unit.name for unit in units("data/**/*.jsonl")] == ["x/a.jsonl"]
    assert str(tmp_path) not in json.dumps(absolute)


def test_two_files_of_one_name_are_refused_with_both_paths(tmp_path: Path) -> None:
    first, second = (jsonl(tmp_path / folder / "a.jsonl", {"text": folder}) for folder in "xy")
    with pytest.raises(
        SourceError, match=r"x/a\.jsonl and .*y/a\.jsonl are both named 'a\.jsonl'; give one glob"
    ):
        units(first, second)
    assert len(units(first, first)) == 1


@pytest.mark.parametrize("path", ["gone.jsonl", "*.jsonl"])
def test_a_missing_file_is_an_error_before_anything_is_read(tmp_path: Path, path: str) -> None:
    good = jsonl(tmp_path / "good" / "a.jsonl", {"text": "t"})
    with pytest.raises(SourceError, match=rf"corpus 'c': no file matches .*{re.escape(path)}"):
        units(good, tmp_path / path)


@pytest.mark.parametrize("name", ["~nobody-of-this-name/a.txt", "~$a.txt"])
def test_a_tilde_begins_the_name_of_a_file_where_nobody_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="no file matches"):
        read(name)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("one text")
    documents, _ = read(name)
    assert [one["text"] for one in documents] == ["one text"]


def test_a_file_with_glob_characters_in_its_name_is_found(tmp_path: Path) -> None:
    assert texts(jsonl(tmp_path / "a[1].jsonl", {"text": "t"})) == ["t"]


def test_a_look_at_an_unchanged_folder_costs_little_more_than_its_names(tmp_path: Path) -> None:
    """The sensor looks every minute, and each run looks: 100,000 files are 5 s."""
    for number in range(4000):
        path = tmp_path / "corpus" / f"part-{number // 400}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text {number}")
        os.utime(path, (1, 1))
    hashes = FileHashes(tmp_path / "store")
    source = open_source("c", FilesConfig(paths=(f"{tmp_path}/corpus/**/*.txt",)), hashes.sha256)
    first = source.units()

    def seconds(work: Callable[[], object]) -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    paths = [Path(unit.files[0][1].place) for unit in first]
    look = min(seconds(source.units) for _ in range(3))
    names = min(seconds(lambda: [path.resolve() for path in paths]) for _ in range(3))
    assert source.units() == first
    assert look < 2.4 * names


def test_a_pipe_and_a_device_are_set_aside_and_not_waited_for(tmp_path: Path) -> None:
    jsonl(tmp_path / "good.jsonl", {"text": "good"})
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    rows, rejects = read(tmp_path / "*")
    assert [row["text"] for row in rows] == ["good"]
    assert rejects == [("pipe.jsonl", None, "unreadable"), ("zero.txt", None, "unreadable")]


def test_a_name_that_is_not_utf8_is_read_under_a_name_that_is(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.jsonl")).write_text('{"text": "one"}\n')
    hashes = FileHashes(tmp_path / "store")
    source = open_source("c", FilesConfig(paths=(str(tmp_path / "*.jsonl"),)), hashes.sha256)
    (unit,) = source.units()
    (batch,) = source.read(unit, [])
    assert (unit.name, batch["source"].to_pylist()) == ("caf%E9.jsonl", ["caf%E9.jsonl"])


def test_links_to_directories_are_followed_once(tmp_path: Path) -> None:
    jsonl(tmp_path / "in" / "sub" / "a.jsonl", {"text": "a"})
    jsonl(tmp_path / "elsewhere" / "b.jsonl", {"text": "b"})
    (tmp_path / "in" / "0-to-sub").symlink_to("sub")
    (tmp_path / "in" / "out").symlink_to(tmp_path / "elsewhere")
    for loop in ("loop", "sub/loop", "sub/again"):
        (tmp_path / "in" / loop).symlink_to(tmp_path / "in")
    rows, rejects = read(tmp_path / "in" / "**" / "*.jsonl")
    assert ([row["source"] for row in rows], rejects) == (["out/b.jsonl", "sub/a.jsonl"], [])


@pytest.mark.parametrize(
    "pattern",
    [
        "**",
        "**/*.jsonl",
        "*/*.jsonl",
        "a/**/c/*",
        "**/b/**",
        "[ab]/**/c.jsonl",
        "*/b/c.jsonl",
        "**/.h/*",
        "?/c.jsonl",
    ],
)
def test_a_glob_finds_what_pythons_finds(tmp_path: Path, pattern: str) -> None:
    for name in (
        "a/b/c.jsonl",
        "a/c/c.jsonl",
        "b/c.jsonl",
        "c.jsonl",
        ".h/d.jsonl",
        "a/.h/d.jsonl",
        "a/b/c/e.jsonl",
    ):
        jsonl(tmp_path / name, {"text": name})
    paths = map(Path, glob.glob(str(tmp_path / pattern), recursive=True))  # noqa: PTH207 - the reference
    found = listed("c", [str(tmp_path / pattern)], lambda name: False)
    assert (
        {Path(file.place) for file in found.values()} == {path for path in paths if path.is_file()} != set()
    )
