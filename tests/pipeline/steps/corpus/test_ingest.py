"""From files to stored documents: nothing unchanged is read again, what is broken is named, none lost."""

import gzip
import json
import os
import re
import resource
import shutil
from functools import partialmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline import sources
from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.source import Unit
from pipeline.steps import checks
from pipeline.steps.corpus.ingest import Raw, unit_groups
from pipeline.store.atomic import OutputError
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import file_sha256
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from pipeline.store.work import Work
from tests.pipeline.steps.make import collect
from tests.pipeline.steps.training.test_plan import recipe
from tests.rows import jsonl, stored_rows

ENGINE = LocalEngine(workers=1)


def set_aside(version: Version) -> checks.Finding:
    """What the check says of what could not be read."""
    subject = checks.Subject(version, Store(version.path.parents[3]), recipe())
    return checks.little_set_aside(subject)


def config(directory: Path) -> FilesConfig:
    return FilesConfig(kind="files", paths=[str(directory / "*.jsonl")])


def documents(version: Version) -> dict[str, str]:
    rows = stored_rows(version, "documents")
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["text"] for row in rows}


def rejects(version: Version) -> list[dict[str, object]]:
    return stored_rows(version, "rejects")


def numbered(directory: Path, files: int, size: int = 400) -> None:
    for number in range(files):
        jsonl(
            directory / f"{number:02d}.jsonl",
            *({"id": f"{number}-{row}", "text": f"{number} {row} " + "word " * size} for row in range(5)),
        )


def test_adding_a_file_changes_one_bucket_and_no_id(tmp_path: Path) -> None:
    numbered(tmp_path / "in", 12)
    store = Store(tmp_path / "store")
    before = collect(store, ENGINE, "c", config(tmp_path / "in"), part_bytes=2000)
    numbered(tmp_path / "in", 13)
    after = collect(store, ENGINE, "c", config(tmp_path / "in"), part_bytes=2000)
    assert documents(before).items() < documents(after).items()
    assert len(documents(after)) == len(documents(before)) + 5
    inodes = {file.path.stat().st_ino for file in before.files("documents")}
    changed = [file for file in after.files("documents") if file.path.stat().st_ino not in inodes]
    assert {
        source for path in changed for source in pq.read_table(path, columns=["source"]).column(0).to_pylist()
    } == {"12.jsonl"}
    assert len(after.files("documents")) - len(changed) == len(before.files("documents")) >= 12


def test_the_files_are_listed_once_however_many_tasks_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered(tmp_path / "in", 40)
    listings, scandir = [], os.scandir

    def counted(path: Any = ".") -> Any:
        if path == tmp_path / "in":
            listings.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    version = collect(Store(tmp_path / "store"), ENGINE, "c", config(tmp_path / "in"), part_bytes=2000)
    assert len(documents(version)) == 200
    assert len(listings) == 1


def test_what_is_read_while_a_folder_vanishes_or_is_replaced_counts_for_neither_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, away, store = tmp_path / "in", tmp_path / "away", Store(tmp_path / "store")
    listing = FilesSource.units

    def disturbed(source: FilesSource, files: int) -> list[Unit]:
        listed = listing(source)
        if not away.exists():
            folder.rename(away)
            numbered(folder, files, size=300)
        return listed

    def expected() -> dict[str, str]:
        return documents(collect(Store(tmp_path / "undisturbed"), ENGINE, "c", config(folder), 2000))

    monkeypatch.setattr(sources.documents, "BATCH_BYTES", 1000)  # so that parts are written meanwhile
    numbered(folder, 3)
    before = expected()
    monkeypatch.setattr(FilesSource, "units", partialmethod(disturbed, files=0))
    with pytest.raises(PipelineError, match="no file matches"):
        collect(store, ENGINE, "c", config(folder), part_bytes=2000)
    away.rename(folder)
    monkeypatch.setattr(FilesSource, "units", partialmethod(disturbed, files=3))
    between = documents(collect(store, ENGINE, "c", config(folder), part_bytes=2000))
    monkeypatch.setattr(FilesSource, "units", listing)
    assert between == expected() != before
    shutil.rmtree(folder)
    away.rename(folder)
    assert documents(collect(store, ENGINE, "c", config(folder), part_bytes=2000)) == before


def test_a_corpus_that_grows_reads_only_the_bucket_of_each_new_file_until_it_has_doubled() -> None:
    units = [Unit(f"{number}.jsonl", str(number), 1000) for number in range(64)]
    for count in range(32, 63):
        before, after = (set(unit_groups(units[:size], part_bytes=8000)) for size in (count, count + 1))
        assert len(after - before) == 1 and len(before - after) <= 1
        assert len(after) <= count / 2  # groups are shared


@pytest.mark.parametrize("size", [1_000, 10_000, 20_000, 30_000, 99_000, 500_000])
def test_files_of_any_one_size_are_work_for_many_workers(size: int) -> None:
    """Of a corpus of sixteen parts, no group is more than an eighth."""
    units = [Unit(f"{number}.jsonl", str(number), size) for number in range(1_600_000 // size)]
    groups = unit_groups(units, part_bytes=100_000)
    assert sum(group.bytes for group in groups) == sum(unit.bytes for unit in units)
    assert max(group.bytes for group in groups) <= max(size, sum(unit.bytes for unit in units) / 8)


def test_what_was_read_with_other_settings_is_not_what_was_last_read_with_these(tmp_path: Path) -> None:
    numbered(tmp_path / "in", 2)
    store, files = Store(tmp_path / "store"), config(tmp_path / "in")
    version = collect(store, ENGINE, "c", files, part_bytes=10_000)
    assert Raw("c", files, 10_000).work(store) == version
    for other, part_bytes in ((files, 20_000), (files.model_copy(update={"max_documents": 1}), 10_000)):
        assert isinstance(Raw("c", other, part_bytes).work(store), Work)


def test_files_that_count_their_rows_anew_are_told_which_setting_tells_them_apart(tmp_path: Path) -> None:
    for name in "ab":
        rows = ({"id": n, "text": f"{name} {n}"} for n in range(20))
        jsonl(tmp_path / "in" / f"{name}.jsonl", *rows)
    store, files = Store(tmp_path / "store"), config(tmp_path / "in")
    finding = set_aside(collect(store, ENGINE, "c", files, part_bytes=2000))
    assert not finding.passed and 'set `id_column: ""` in a source of kind `files`' in finding.message
    by_place = files.model_copy(update={"id_column": ""})
    finding = set_aside(collect(store, ENGINE, "c", by_place, part_bytes=2000))
    assert finding.passed and "id_column" not in finding.message


def test_a_run_that_loses_too_many_rows_says_why_and_names_the_first(tmp_path: Path) -> None:
    lost = {"title": "a", "body": "lost"}
    jsonl(tmp_path / "in" / "a.jsonl", {"text": "kept"}, lost, {"text": ""}, lost)
    version = collect(Store(tmp_path / "store"), ENGINE, "c", config(tmp_path / "in"), part_bytes=2000)
    said = set_aside(version).message
    assert "the limit is 20.00%: no_text 2, empty_text 1. First, " in said
    assert "a.jsonl, row 2: no column 'text', which" in said and said.endswith("there are 'title', 'body'")


def test_an_id_that_two_files_share_stays_with_the_first(tmp_path: Path) -> None:
    jsonl(tmp_path / "in" / "a.jsonl", {"id": "same", "text": "from a"}, {"id": "only-a", "text": "a"})
    jsonl(tmp_path / "in" / "b.jsonl", {"id": "same", "text": "from b"}, {"id": "only-b", "text": "b"})
    store = Store(tmp_path / "store")
    version = collect(store, ENGINE, "c", config(tmp_path / "in"), part_bytes=1_000_000)
    assert sorted(documents(version).values()) == ["a", "b", "from a"]
    assert version.counts["documents"] == 3
    assert [(row["file"], row["reason"]) for row in rejects(version)] == [("b.jsonl", "duplicate_id")]
    (tmp_path / "in" / "a.jsonl").unlink()
    assert sorted(
        documents(collect(store, ENGINE, "c", config(tmp_path / "in"), part_bytes=1_000_000)).values()
    ) == ["b", "from b"]


def test_a_broken_line_is_set_aside_with_its_place_and_the_rest_arrives(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "one"}\n{"text": \n{"text": "three"}\n')
    version = collect(Store(tmp_path / "store"), ENGINE, "c", config(tmp_path / "in"), part_bytes=1_000_000)
    assert sorted(documents(version).values()) == ["one", "three"]
    assert [(row["file"], row["row"]) for row in rejects(version)] == [("a.jsonl", 2)]
    assert version.counts["set_aside"] == version.counts["set_aside/invalid_json"] == 1


def test_an_empty_corpus_is_refused_with_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("not json\n")
    with pytest.raises(
        PipelineError, match=r"corpus 'c' is empty: its source gave no valid document \(invalid_json 1\)"
    ):
        collect(Store(tmp_path / "store"), ENGINE, "c", config(tmp_path / "in"), part_bytes=1_000_000)


def test_an_empty_corpus_says_which_column_is_missing_and_which_there_are(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "wiki.csv").write_text("nr,titel,body\n1,a,b\n")
    files = FilesConfig(paths=(str(tmp_path / "in" / "*.csv"),))
    said = r"First, wiki\.csv: no column 'text': name .* `text_column`; there are 'nr', 'titel', 'body'"
    with pytest.raises(PipelineError, match=said):
        collect(Store(tmp_path / "store"), ENGINE, "c", files, part_bytes=1_000_000)


def test_an_unchanged_corpus_is_not_read_again_to_find_that_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered(tmp_path / "in", 3)
    for path in (tmp_path / "in").iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    store = Store(tmp_path / "store")
    before = collect(store, ENGINE, "c", config(tmp_path / "in"), part_bytes=2000)
    read: list[Path] = []
    monkeypatch.setattr(
        "pipeline.store.file_hashes.file_sha256", lambda path: read.append(path) or file_sha256(path)
    )  # type: ignore[func-returns-value]
    assert Raw("c", config(tmp_path / "in"), 2000).observe(store) == before.manifest["inputs"]["source"]
    assert collect(store, ENGINE, "c", config(tmp_path / "in"), part_bytes=2000).reused
    assert read == []
    jsonl(tmp_path / "in" / "00.jsonl", {"id": "other", "text": "changed"})
    assert Raw("c", config(tmp_path / "in"), 2000).observe(store) != before.manifest["inputs"]["source"]
    assert read == [tmp_path / "in" / "00.jsonl"]


def test_the_same_documents_in_a_file_written_anew_are_the_same_data_version(tmp_path: Path) -> None:
    documents = [{"id": str(row), "text": f"{row} word"} for row in range(5)]
    jsonl(tmp_path / "in" / "a.jsonl", *documents)
    store = Store(tmp_path / "store")
    before = collect(store, ENGINE, "c", config(tmp_path / "in"), part_bytes=1_000_000)
    (tmp_path / "in" / "a.jsonl").write_text(
        "".join(json.dumps(document, indent=None, separators=(",", ":")) + "\n\n" for document in documents)
    )
    after = collect(store, ENGINE, "c", config(tmp_path / "in"), part_bytes=1_000_000)
    assert not after.reused
    assert (after.path != before.path, after.data_version) == (True, before.data_version)


def test_nine_of_ten_broken_files_fail_the_check_though_they_are_nine_rejects(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(10):
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"text": [f"document {number} {row}" for row in range(200)]}), path)
        if number:
            os.truncate(path, path.stat().st_size - 100)
    files = FilesConfig(paths=(str(tmp_path / "in" / "*.parquet"),))
    version = collect(Store(tmp_path / "store"), ENGINE, "c", files, part_bytes=1_000_000)
    assert (version.counts["documents"], version.counts["set_aside"]) == (200, 9)
    found = set_aside(version)
    assert not found.passed and 0.89 < found.numbers["share"] < 0.91
    assert re.match(
        r"9 of 209 rows and [\d,]+ of [\d,]+ bytes of files \(89\.\d+%\) were set aside", found.message
    )


@pytest.mark.parametrize("cut", [0, 200])
def test_a_file_of_zstd_with_a_long_window_is_read_and_its_end_missed(tmp_path: Path, cut: int) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=True)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    lines = "".join(json.dumps({"text": f"{row} {row**20}"}) + "\n" for row in range(2_000))
    wide = writer.compress(lines.encode()) + writer.flush()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "wide.jsonl.zst").write_bytes(wide[: len(wide) - cut])
    files = FilesConfig(paths=(str(tmp_path / "in" / "*"),))
    version = collect(Store(tmp_path / "store"), ENGINE, "c", files, part_bytes=1_000_000)
    named = [str(reject["reason"]) for reject in rejects(version)]
    if cut:
        assert 500 < version.counts["documents"] < 2_000 and "broken_compression" in named
    else:
        assert (version.counts["documents"], named) == (2_000, [])


def test_of_a_damaged_gzip_file_the_members_before_are_kept_and_the_bytes_after_counted(
    tmp_path: Path,
) -> None:
    lines = "".join(json.dumps({"text": f"{row} {row**99}"}) + "\n" for row in range(10_000))
    member = gzip.compress(lines.encode(), mtime=0)
    content = bytearray(member + gzip.compress(lines.upper().encode(), mtime=0))
    content[len(member) * 3 // 2] ^= 1
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(content)
    files = FilesConfig(paths=(str(tmp_path / "in" / "*"),))
    version = collect(Store(tmp_path / "store"), ENGINE, "c", files, part_bytes=1_000_000)
    assert version.counts["documents"] == 10_000
    assert version.counts["lost_bytes"] == len(content) - len(member)
    assert not set_aside(version).passed


def test_the_rows_of_a_broken_row_group_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.parquet"
    table = pa.table({"text": [f"document {row}" for row in range(1_000)]})
    pq.write_table(table, path, row_group_size=500, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[content.index(b"document 700") - 4] = 255  # the length of the text
    path.write_bytes(content)
    files = FilesConfig(paths=(str(path),))
    version = collect(Store(tmp_path / "store"), ENGINE, "c", files, part_bytes=1_000_000)
    lost = version.counts["set_aside"]
    assert 300 <= lost <= 500 and version.counts["documents"] + lost == 1_000
    assert not set_aside(version).passed
    (reject,) = rejects(version)
    assert str(reject["detail"]).startswith(f"rows {1_001 - lost} to 1000 are lost: ")


def test_a_full_disk_is_one_sentence_that_names_the_store_and_with_room_the_run_goes_on(
    tmp_path: Path,
) -> None:
    numbered(tmp_path / "in", 40, size=4_000)
    store = Store(tmp_path / "store")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    try:
        with pytest.raises(OutputError, match=rf"{tmp_path}/store.* cannot be written \(.*File too large"):
            collect(store, ENGINE, "c", config(tmp_path / "in"), part_bytes=1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert collect(store, ENGINE, "c", config(tmp_path / "in"), 1_000_000).counts["documents"] == 200


@pytest.mark.parametrize("part_bytes", [300, 1_000, 4_000, 1_000_000])
def test_the_first_file_by_name_keeps_an_id_whatever_the_size_of_parts(
    tmp_path: Path, part_bytes: int
) -> None:
    for number in range(12):
        same = {"id": "same", "text": f"same in {number:02d}"}
        jsonl(tmp_path / "in" / f"{number:02d}.jsonl", {"text": f"{number} " * 100}, same)
    version = collect(Store(tmp_path / "store"), ENGINE, "c", config(tmp_path / "in"), part_bytes)
    assert [text for text in documents(version).values() if "same" in text] == ["same in 00"]
    found = rejects(version)
    assert sorted(str(reject["file"]) for reject in found) == [
        f"{number:02d}.jsonl" for number in range(1, 12)
    ]
    assert all("which the one in 00.jsonl keeps" in str(reject["detail"]) for reject in found)
