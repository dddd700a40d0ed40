"""Nothing that is in use, or that a training run's lineage names, is ever removed; the rest is found and
weighed.
"""

import os
import time
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.steps.training import plan
from pipeline.store import gc
from pipeline.store.versions import Store, reports_on
from tests.pipeline.steps.corpora import TEXTS, prepare
from tests.pipeline.steps.training.test_plan import make_shards, recipe


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """One corpus up to token shards, then changed and made again: the first versions are no longer in use."""
    store = Store(tmp_path / "store")
    prepare(store, tmp_path / "first.jsonl", TEXTS[:15])
    make_shards(store, recipe("first"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    return store


def change(store: Store, tmp_path: Path) -> None:
    prepare(store, tmp_path / "first.jsonl", TEXTS[:9])
    make_shards(store, recipe("first"))


def files(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"}


def test_old_versions_that_no_run_names_are_removed_and_those_in_use_stay_whole(
    store: Store, tmp_path: Path
) -> None:
    old = store.current("token_shards/first").path
    reports = reports_on(old)
    store.current("token_shards/first").report("hashes", 1, list)
    change(store, tmp_path)
    found = gc.find(store)
    assert old in {one.path for one in found}
    before = sum(path.stat().st_size for path in files(store.root))
    removed = gc.remove(store, found)
    assert removed == found and not old.exists() and not reports.exists()
    assert before - sum(path.stat().st_size for path in files(store.root)) == pytest.approx(
        sum(one.bytes for one in found), rel=0.05
    )  # manifests too
    plan.plan(store, recipe("first"))
    for key in (
        "corpora/first/raw",
        "corpora/first/scrubbed",
        "corpora/first/quality",
        "dedup",
        "token_shards/first",
    ):
        version = store.current(key)
        assert all(part.is_whole(version.path) for part in version.parts)
    assert gc.find(store) == []


def test_what_a_training_run_was_made_from_stays(store: Store, tmp_path: Path) -> None:
    run = plan.plan(store, recipe("first"))
    run.config.run_dir.mkdir(parents=True)
    run.write_config()
    named = {store.root / asset["path"] for asset in run.config.lineage["assets"].values()}
    change(store, tmp_path)
    assert not named & {one.path for one in gc.find(store)}
    gc.remove(store, gc.find(store))
    assert all((path / "manifest.json").exists() for path in named)


def test_an_unfinished_attempt_is_kept_for_a_day_so_that_it_can_be_resumed(store: Store) -> None:
    partial = store.directory("corpora/first/raw") / ".0123456789abcdef.partial"
    partial.mkdir()
    assert gc.find(store) == []
    yesterday = time.time() - 2 * gc.UNFINISHED_AFTER_SECONDS
    os.utime(partial, (yesterday, yesterday))
    assert [one.path for one in gc.find(store)] == [partial]


def test_what_is_being_made_now_is_not_removed(store: Store, tmp_path: Path) -> None:
    change(store, tmp_path)
    found = gc.find(store)
    with store.idle("dedup") as idle:
        assert idle
        removed = gc.remove(store, found)
    assert {one.path.parent.name for one in found} - {one.path.parent.name for one in removed} == {"dedup"}


def test_the_command_removes_nothing_unless_told_to(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(store, tmp_path)
    before = files(store.root)
    assert main(["gc"]) == 0
    said = capsys.readouterr().out
    assert "token_shards/first/" in said and "`python -m pipeline gc --delete` frees it" in said
    assert files(store.root) == before
    assert main(["gc", "--delete"]) == 0
    assert "freed" in capsys.readouterr().out
    assert main(["gc"]) == 0
    assert "nothing to remove" in capsys.readouterr().out
