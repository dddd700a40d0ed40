"""A damaged Parquet file ends in one sentence that names it, and never in other rows."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipeline.store import keys
from pipeline.store.damage import DamageError
from pipeline.store.draft import Draft
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import PartWriter, batches, kept_ids, read_table
from pipeline.store.parts import BatchStep, derive, part_tasks
from pipeline.store.store import Store
from pipeline.store.work import Work
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.store.test_damage import flip, flip_in_silence

SCHEMA = pa.schema([("id", pa.string()), ("text", pa.large_string()), ("keep", pa.bool_())])
ROWS = pa.RecordBatch.from_pylist(
    [{"id": f"{n:04d}", "text": text, "keep": n % 3 > 0} for n, text in enumerate(TEXTS)], SCHEMA
)


def written(directory: Path) -> Path:
    with PartWriter(directory, "part", {"documents": SCHEMA}) as writer:
        writer.write("documents", ROWS)
    return directory / "documents" / "part.parquet"


def test_no_flipped_byte_in_a_page_is_read_as_something_else(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole, sound = path.read_bytes(), pa.Table.from_batches(batches(path))
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    noticed = 0
    for place in random.Random(1).sample(range(4, len(whole) - footer), 150):
        path.write_bytes(whole)
        flip(path, place)
        try:
            found = pa.Table.from_batches(batches(path))
        except DamageError as error:
            assert str(error).startswith(f"{path} is damaged (") and "\n" not in str(error)
            noticed += 1
        else:  # in what a reader does not need, such as an offset that it knows from elsewhere
            assert found.equals(sound)
    assert noticed > 140


def test_the_pieces_of_a_file_are_its_row_groups_each_once_and_in_order(tmp_path: Path) -> None:
    with PartWriter(tmp_path, "part", {"documents": SCHEMA}) as writer:
        for first in range(0, len(ROWS), 4):
            writer.write("documents", ROWS.slice(first, 4))
    path = tmp_path / writer.files["documents"].path
    groups = list(batches(path))
    assert len(groups) == 8
    for count in (1, 3, 8, 11):
        pieces = [list(batches(path, piece=(number, count))) for number in range(count)]
        assert [group for piece in pieces for group in piece] == groups
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


@pytest.mark.parametrize("read", [lambda path: list(batches(path)), kept_ids, read_table])
def test_every_way_to_read_a_cut_or_missing_file_ends_in_one_sentence(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamageError, match="is damaged"):
        read(path)
    path.unlink()
    with pytest.raises(DamageError, match=r"part\.parquet is missing"):
        read(path)


def test_files_of_earlier_versions_without_checksums_are_read(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_batches([ROWS]), tmp_path / "old.parquet", compression="zstd")
    assert pa.Table.from_batches(batches(tmp_path / "old.parquet")).equals(pa.Table.from_batches([ROWS]))
    assert read_table(tmp_path / "old.parquet", ["id"], pc.field("id") == "0003").num_rows == 1


def documents(store: Store) -> Version:
    work = Work(keys.scrubbed("docs"), "1", {}, {})
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        assert isinstance(draft, Draft)
        with PartWriter(draft.path, "part", {"documents": SCHEMA}) as writer:
            writer.write("documents", ROWS)
        return draft.publish([Part("part", work.fingerprint, writer.files)])


def lengths(store: Store, code_version: str) -> Version:
    step = BatchStep(
        lambda batch: ({"documents": batch}, {"documents": batch.num_rows}), {"documents": SCHEMA}
    )
    source = documents(store)
    work = Work(keys.quality("docs"), code_version, {}, {source.key: source.data_version})
    return derive(store, ENGINE, work, part_tasks(work, [(source, "documents")]), step.write_part)


def test_a_page_that_rotted_stops_the_run_that_reads_it_and_the_next_makes_the_file_again(
    tmp_path: Path,
) -> None:
    before = lengths(Store(tmp_path), "1")
    rotten = documents(Store(tmp_path)).files("documents")[0].path
    flip_in_silence(rotten, 1000)
    assert lengths(Store(tmp_path), "1").reused  # nothing is read
    with pytest.raises(DamageError, match=rf"{rotten} is damaged .*: run the job again, which moves"):
        lengths(Store(tmp_path), "2")
    assert lengths(Store(tmp_path), "2").data_version == before.data_version
    assert list(rotten.parents[2].glob(".*.damaged-1"))
