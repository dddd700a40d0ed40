"""A damaged version is as good as none: nothing is made of it, and it is made again."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.store.cleanup import gc
from pipeline.store.damage import DamageError
from pipeline.store.file_hashes import NAME
from pipeline.store.files import MANIFEST
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError
from tests.pipeline.store.test_store import publish, work


def flip(path: Path, at: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def flip_in_silence(path: Path, at: int = 0) -> None:
    """As a disk does it: neither size nor time changes. No program can set ctime, so the cache learns it."""
    stat = path.stat()
    flip(path, at)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for cache in (parent / NAME for parent in path.parents if (parent / NAME).exists()):
        with sqlite3.connect(cache) as table:
            table.execute(
                "update files set changed = ? where path = ?", (path.stat().st_ctime_ns, str(path.resolve()))
            )


def file(version: Version, name: str = "a") -> Path:
    return version.path / "table" / f"{name}.txt"


def without_a_number(path: Path) -> None:
    manifest = json.loads(path.read_text())
    manifest["counts"]["rows"] += 1
    path.write_text(json.dumps(manifest))


DAMAGES: dict[str, Callable[[Version], object]] = {
    "no manifest": lambda it: (it.path / MANIFEST).unlink(),
    "empty manifest": lambda it: (it.path / MANIFEST).write_text(""),
    "half a manifest": lambda it: os.truncate(it.path / MANIFEST, 100),
    "a manifest that is a list": lambda it: (it.path / MANIFEST).write_text("[]"),
    "a manifest of nothing": lambda it: (it.path / MANIFEST).write_text("{}"),
    "a changed count": lambda it: without_a_number(it.path / MANIFEST),
    "no file": lambda it: file(it).unlink(),
    "a cut file": lambda it: os.truncate(file(it), 1),
    "a flipped bit": lambda it: flip(file(it)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_version_is_made_again_and_the_damaged_one_moved_aside(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = publish(Store(tmp_path), work(), a="one", b="two")
    DAMAGES[damage](made)
    store = Store(tmp_path)
    assert store.existing(work()) is None
    again = publish(store, work(), a="one", b="two")
    assert (again.path, again.data_version) == (made.path, made.data_version)
    assert file(again).read_text() == "one"
    assert Store(tmp_path).existing(work()) is not None
    assert [path.name for path in made.path.parent.glob(".*damaged*")] == [f".{made.path.name}.damaged-1"]
    (told,) = [record.message for record in caplog.records]
    assert str(made.path) in told and "it is made again" in told


def test_a_second_damaged_version_is_moved_beside_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        DAMAGES["a cut file"](publish(Store(tmp_path), work(), a="one"))
    made = publish(Store(tmp_path), work(), a="one")
    assert {path.name[-9:] for path in made.path.parent.glob(".*damaged*")} == {"damaged-1", "damaged-2"}


@pytest.mark.parametrize("damage", ["no manifest", "half a manifest", "a changed count"])
def test_a_neighbor_with_a_bad_manifest_stops_nothing(tmp_path: Path, damage: str) -> None:
    older = publish(Store(tmp_path), work(source="1"), a="one")
    newest = publish(Store(tmp_path), work(source="2"), a="two")
    DAMAGES[damage](newest)
    store = Store(tmp_path)
    assert [version.path for version in store.newest_first(Key("stage"))] == [older.path]
    assert store.made_with(Key("stage"), "v1", {}) == store.current(Key("stage")) == older
    with pytest.raises(StoreError, match=r"manifest.json is missing or damaged \(.*\): materialize stage"):
        store.open(Key("stage"), newest.path.name)
    assert publish(store, work(source="3"), a="three").counts == {"rows": 5}


def test_a_deleted_version_is_made_again(tmp_path: Path) -> None:
    made = publish(Store(tmp_path), work(), a="one")
    shutil.rmtree(made.path)
    assert publish(Store(tmp_path), work(), a="one").data_version == made.data_version


def test_nothing_is_made_of_a_damaged_version_and_the_next_run_makes_it_again(tmp_path: Path) -> None:
    source = publish(Store(tmp_path), work("source"), a="one")
    (tmp_path / "file-hashes.sqlite").unlink()  # as in a store that was made before hashes were remembered
    flip_in_silence(file(source))
    store = Store(tmp_path)
    store.use(source)
    made_of_it = work("made", source=source.data_version)
    with pytest.raises(DamageError, match=r"a.txt is corrupt.*: materialize source"):
        publish(store, made_of_it, a="two")
    again = publish(Store(tmp_path), work("source"), a="one")
    assert file(again).read_text() == "one"
    assert publish(store, made_of_it, a="two").counts == {"rows": 3}


def test_what_was_moved_aside_is_garbage_and_so_is_a_version_without_a_manifest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(2):
        made = publish(store, work("dedup"), a="one")
        DAMAGES["a cut file"](made)
    aside = made.path.with_name(f".{made.path.name}.damaged-1")
    (made.path / MANIFEST).unlink()
    found = gc.find(store)
    assert {one.paths[0] for one in found} == {aside, made.path}
    gc.remove(store, found)
    assert not aside.exists() and not made.path.exists()
