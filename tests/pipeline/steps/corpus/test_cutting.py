"""Parts are cut by content: a change of a file leaves the parts that it does not touch."""

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources.documents import document_id
from pipeline.sources.files import FilesConfig
from pipeline.stages.pii import PiiParams
from pipeline.steps.corpus import cutting
from pipeline.steps.corpus.cutting import LARGEST_PART, SMALLEST_PART, numbered, row_groups
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.engines.local import LocalEngine
from pipeline.store.manifest import Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.store import Store
from pipeline.store.work import Work
from tests.pipeline.steps.make import collect, scrub
from tests.rows import jsonl

ENGINE = LocalEngine(workers=1)
PART_BYTES = 4_000
Row = tuple[str, str]  # id and text


def rows(seed: int, count: int) -> list[Row]:
    sizes = np.random.default_rng(seed).integers(20, 150, count)
    return [(f"{seed}-{row}", f"{seed} {row} " + "w" * size) for row, size in enumerate(sizes.tolist())]


def write(path: Path, content: list[Row]) -> FilesConfig:
    path.parent.mkdir(exist_ok=True)
    jsonl(path, *({"id": name, "text": text} for name, text in content))
    return FilesConfig(paths=(str(path.parent / "*.jsonl"),))


def batch(content: list[Row]) -> pa.RecordBatch:
    names, texts = [document_id("c", name) for name, _ in content], [text for _, text in content]
    nothing = pa.nulls(len(content), pa.string())
    return pa.record_batch([names, texts, nothing, nothing, nothing], names=DOCUMENT_SCHEMA.names)


def cut(content: list[Row], *at: int) -> list[list[str]]:
    """The ids of each part, of documents that come in batches divided `at` these rows."""
    edges = sorted({0, len(content), *(row % (len(content) + 1) for row in at)})
    parts: dict[int, list[str]] = {}
    for number, some in numbered((batch(content[a:b]) for a, b in pairwise(edges)), PART_BYTES):
        parts.setdefault(number, []).extend(some.column("id").to_pylist())
    return list(parts.values())


def texts(version: Version) -> list[str]:
    return [text for path in version.files("documents") for text in pq.read_table(path)["text"].to_pylist()]


def contents(version: Version) -> dict[str, str]:
    return {part.name: part.data_version for part in version.parts if "documents" in part.files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Store]:
    """A file in about 17 parts, read."""
    directory, content = tmp_path_factory.mktemp("whole"), rows(0, 600)
    store = Store(directory / "store")
    collect(store, ENGINE, "c", write(directory / "in" / "a.jsonl", content), PART_BYTES)
    return content, store


@settings(max_examples=5, deadline=None, derandomize=True)
@given(kind=st.sampled_from(["front", "middle", "append", "delete"]), seed=st.integers(0, 10**6))
def test_an_edit_of_a_file_makes_at_most_three_parts_again(
    whole: tuple[list[Row], Store], tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int
) -> None:
    content, stored = whole
    content, directory = list(content), tmp_path_factory.mktemp("edited")
    at = seed % len(content)
    match kind:
        case "front":
            content[:0] = rows(seed + 1, 1)
        case "middle":
            content[at] = content[at][0], content[at][1] + " edited"
        case "append":
            content += rows(seed + 1, 1)
        case "delete":
            del content[at]
    shutil.copytree(stored.root, directory / "store")
    store = Store(directory / "store")
    files = write(stored.root.parent / "in" / "a.jsonl", content)
    before, after = store.current(keys.raw("c")), collect(store, ENGINE, "c", files, PART_BYTES)
    kept = contents(before).items() & contents(after).items()
    assert len(contents(before)) > 12
    assert len(kept) >= max(len(contents(before)), len(contents(after))) - 3
    fresh = collect(Store(directory / "fresh"), ENGINE, "c", files, PART_BYTES)
    assert (fresh.data_version, list(contents(fresh))) == (after.data_version, list(contents(after)))
    assert texts(fresh) == [text for _, text in content]


def test_a_line_in_front_is_all_that_a_stage_reads_again(tmp_path: Path) -> None:
    content, store = rows(1, 600), Store(tmp_path / "store")
    parts = []
    for front in ([], rows(2, 1)):
        files = write(tmp_path / "in" / "a.jsonl", front + content)
        collect(store, ENGINE, "c", files, PART_BYTES)
        parts.append(scrub(store, ENGINE, "c", PiiParams()).files("documents"))
    before, after = ({file.path.stat().st_ino for file in paths} for paths in parts)
    assert len(after) > 12 and len(after - before) == 1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), at=st.lists(st.integers(0, 400), max_size=20))
def test_the_batches_in_which_documents_arrive_move_no_cut_and_parts_keep_their_size(
    seed: int, at: list[int]
) -> None:
    content = rows(seed, 300)
    sizes = {document_id("c", name): len(text) for name, text in content}
    parts = cut(content, *at)
    assert parts == cut(content)
    assert [name for part in parts for name in part] == list(sizes)
    bytes_of = [sum(sizes[name] for name in part) for part in parts]
    assert max(bytes_of) <= LARGEST_PART * PART_BYTES
    assert min(bytes_of[:-1]) >= SMALLEST_PART * PART_BYTES
    edges = sorted({0, len(content), *(row % len(content) for row in at)})
    pieces = [batch(content[a:b]) for a, b in pairwise(edges)]
    whole = list(row_groups([batch(content)], PART_BYTES))
    assert list(row_groups(pieces, PART_BYTES)) == whole
    assert pa.Table.from_batches(whole).num_rows == len(content) and len(whole) > 40


def test_a_folder_of_small_files_takes_as_long_as_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a batch. To look again at all that are held, for each that arrives, would take hours."""
    content, looks = rows(4, 4_000), 0

    def counted(some: pa.RecordBatch) -> np.ndarray:
        nonlocal looks
        looks += 1
        return sizes(some)

    sizes = cutting._text_sizes
    monkeypatch.setattr(cutting, "_text_sizes", counted)
    found = [
        (number, name)
        for number, some in numbered((batch([row]) for row in content), 50 * PART_BYTES)
        for name in some.column("id").to_pylist()
    ]
    assert looks < 3 * len(content)
    whole = numbered([batch(content)], 50 * PART_BYTES)
    assert found == [(number, name) for number, some in whole for name in some.column("id").to_pylist()]
    assert len({number for number, _ in found}) > 1


def test_one_process_or_two_cut_the_same_parts_under_the_same_names(tmp_path: Path) -> None:
    for number in range(3):
        files = write(tmp_path / "in" / f"{number}.jsonl", rows(number, 120))
    several = LocalEngine(workers=2, processes_pay_above=0)
    one = collect(Store(tmp_path / "one"), ENGINE, "c", files, PART_BYTES)
    two = collect(Store(tmp_path / "two"), several, "c", files, PART_BYTES)
    several.close()
    assert one.data_version == two.data_version
    assert [part.name for part in one.parts] == [part.name for part in two.parts]


def test_files_whose_parts_begin_with_the_same_id_lose_no_document(tmp_path: Path) -> None:
    for number in range(30):
        same = [(f"same-{row}", f"{number} {row} " + "w" * 1_200) for row in range(3)]
        files = write(tmp_path / "in" / f"{number:02d}.jsonl", same)
    version = collect(Store(tmp_path / "store"), ENGINE, "c", files, PART_BYTES)
    assert sorted(text.split()[0] for text in texts(version)) == ["0", "0", "0"]
    assert version.counts["set_aside/duplicate_id"] == 87


def test_a_read_that_was_killed_goes_on_with_the_files_that_it_had_read(tmp_path: Path) -> None:
    for number in range(3):
        files = write(tmp_path / "in" / f"{number}.jsonl", rows(number, 120))
    store = Store(tmp_path / "store")
    version = collect(store, ENGINE, "c", files, PART_BYTES)
    partial = version.path.with_name(f".{version.path.name}.partial")
    shutil.copytree(version.path, partial, copy_function=shutil.copy2)
    (partial / "manifest.json").unlink()
    work = Work(version.key, version.manifest["code_version"], version.manifest["params"], {})
    work = replace(work, inputs=version.manifest["inputs"])
    draft = Draft(store, work)
    for part in version.parts:
        if not part.name.startswith(version.parts[0].name.partition(".")[0]):
            draft.keep(part)
    shutil.rmtree(version.path)
    before = {path.name: path.stat().st_ino for path in (partial / "documents").iterdir()}
    again = collect(Store(tmp_path / "store"), ENGINE, "c", files, PART_BYTES)
    kept = [file for file in again.files("documents") if file.path.stat().st_ino == before[file.name]]
    assert again.data_version == version.data_version
    assert 0 < len(kept) < len(before) and len(kept) > len(before) // 2
