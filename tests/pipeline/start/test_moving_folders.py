"""Folders in which others write, cut and delete files while `start` looks at them."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.sources import listing
from pipeline.sources.source_file import LocalFile
from pipeline.start.choose import Wishes, choose
from pipeline.start.folder.look import NothingReadableError
from tests.folders import ENGLISH
from tests.pipeline.start.test_start import fixed_speed, judged

SCRIPT = "for line in open('notes'):\n    print(line)\n" * 20


def _write(folder: Path) -> None:
    """Three texts of each of several formats."""
    folder.mkdir()
    for number in range(3):
        text = ENGLISH[number]
        (folder / f"{number}.txt").write_text(text)
        (folder / f"{number}.py").write_text(SCRIPT)
        (folder / f"{number}.txt.gz").write_bytes(gzip.compress(text.encode()))
        (folder / f"{number}.jsonl").write_text(json.dumps({"text": text}) + "\n")
        (folder / f"{number}.html").write_text(f"<html><body><article><p>{text}</p></article></body></html>")
        (folder / f"{number}.srt").write_text("1\n00:00:01,000 --> 00:00:03,000\nHello there.\n\n" * 20)
        pq.write_table(pa.table({"text": [text]}), folder / f"{number}.parquet")
        cell = {"cell_type": "markdown", "metadata": {}, "source": [text]}
        (folder / f"{number}.ipynb").write_text(json.dumps({"cells": [cell], "nbformat": 4}))


@pytest.mark.parametrize("happens", [Path.unlink, lambda path: os.truncate(path, 0)], ids=["gone", "cut"])
@pytest.mark.parametrize("opened", range(1, 6))
@pytest.mark.parametrize("keeps", ["", "2.txt"], ids=["all", "all but one"])
def test_a_file_that_goes_while_it_is_looked_at_is_told_or_left_out(
    happens: Callable[[Path], None], opened: int, keeps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, times, opens = tmp_path / "texts", dict[Path, int](), LocalFile.open
    _write(folder)

    def open_then_change(file: LocalFile) -> BinaryIO:
        try:
            return opens(file)
        finally:
            times[file.path] = times.get(file.path, 0) + 1
            if times[file.path] == opened and file.path.name != keeps:
                happens(file.path)

    monkeypatch.setattr(LocalFile, "open", open_then_change)
    try:
        found = judged(folder)
    except NothingReadableError:
        assert not keeps
        return
    assert choose(found, Wishes(360.0), fixed_speed()).horizon.tokens
    assert not keeps or any("txt" in path for corpus in found.corpora for path in corpus.paths)


def test_a_sub_folder_that_goes_while_the_folder_is_listed_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, entries, listed = tmp_path / "texts", listing._entries, list[Path]()
    _write(folder)
    _write(folder / "work")

    def entries_then_gone(directory: Path) -> "list[os.DirEntry[str]]":
        found = entries(directory)
        listed.append(directory)
        if listed == [folder, folder]:  # once for its files, once for its folders
            rmtree(folder / "work")
        return found

    monkeypatch.setattr(listing, "_entries", entries_then_gone)
    assert "texts" in {corpus.name for corpus in judged(folder).corpora}
    assert not (folder / "work").exists()
