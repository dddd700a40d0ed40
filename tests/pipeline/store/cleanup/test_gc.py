"""Nothing in use, or in the lineage of a run, is ever removed; the rest is found and weighed."""

import json
import os
import random
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.loading import load_recipe
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.training import plan
from pipeline.store import keys, last_versions
from pipeline.store.cleanup import gc
from pipeline.store.draft import Draft
from pipeline.store.errors import PipelineError
from pipeline.store.files import reports_on
from pipeline.store.last_versions import LastVersions, RecipeName
from pipeline.store.manifest import File, Part, Version
from pipeline.store.store import Store
from pipeline.store.work import Work
from tests.pipeline.steps.corpora import TEXTS, as_it_was, prepare
from tests.pipeline.steps.training.test_plan import make_shards, recipe

KEYS = ["corpora/a/raw", "corpora/b/own", "a_table_of_its_own", "tokenizer"]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one corpus up to token shards, made by a recipe in a file."""
    folder = tmp_path_factory.mktemp("gc") / "project"
    folder.mkdir()
    run(folder, TEXTS[:15])
    return folder


@pytest.fixture
def project(made_once: Path) -> Iterator[Path]:
    """What was made, in which a test may change what it likes."""
    with as_it_was(made_once):
        yield made_once


@pytest.fixture
def store(project: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("GROUNDWORK_STORE", str(project / "store"))
    return Store(project / "store", RecipeVersions(load_recipe(project / "mine.yaml")))


def run(tmp_path: Path, texts: list[str], **changes: Any) -> Store:
    """What a run of the recipe on these texts, with changed settings, leaves in the store."""
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(recipe("first").model_dump(mode="json")))
    written, changed = load_recipe(path), load_recipe(path, changes)
    store = Store(tmp_path / "store", RecipeVersions(changed, written))
    prepare(store, tmp_path / "first.jsonl", texts)
    make_shards(store, changed)
    return store


def change(store: Store, tmp_path: Path) -> None:
    """Changes the corpus and makes everything again: no recipe uses the first versions any more."""
    run(tmp_path, TEXTS[:9])


def files(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_old_versions_that_no_run_names_are_removed_and_those_in_use_stay_whole(
    store: Store, project: Path
) -> None:
    old = store.current(keys.token_shards("first")).path
    reports = reports_on(old)
    store.current(keys.token_shards("first")).report("hashes", 1, list)
    change(store, project)
    found = gc.find(store)
    assert old in {one.paths[0] for one in found}
    before = sum(path.stat().st_size for path in files(store.root))
    removed = gc.remove(store, found)
    assert removed == found and not old.exists() and not reports.exists()
    assert before - sum(path.stat().st_size for path in files(store.root)) == pytest.approx(
        sum(one.bytes for one in found), rel=0.05
    )  # manifests too
    store = Store(store.root, RecipeVersions(load_recipe(project / "mine.yaml")))
    for key in (
        "corpora/first/raw",
        "corpora/first/scrubbed",
        "corpora/first/quality",
        "dedup",
        "token_shards/first",
    ):
        version = store.current(key)
        assert all(file.is_whole(version.path) for file in version.written)
    assert gc.find(store) == []


def test_what_a_recipe_uses_again_since_the_garbage_was_found_stays(store: Store, project: Path) -> None:
    old = store.current(keys.token_shards("first")).path
    change(store, project)
    found = gc.find(store)
    run(project, TEXTS[:15])
    assert old in {one.paths[0] for one in found}
    assert old not in {one.paths[0] for one in gc.remove(store, found)} and files(old)


def test_bytes_that_something_else_shares_are_not_counted_as_freed(store: Store, project: Path) -> None:
    shared = store.current(keys.raw("first")).files("documents")[0].path
    change(store, project)

    def freed() -> int:
        return next(one.bytes for one in gc.find(store) if shared.is_relative_to(one.paths[0]))

    before = freed()
    os.link(shared, project / "shared")
    assert before - freed() == shared.stat().st_size


@pytest.mark.parametrize(
    "where", ["config.yaml", "checkpoints/step-00000008/lineage.json", "../../exported_model/0/lineage.json"]
)
def test_what_a_training_run_a_checkpoint_or_an_export_was_made_from_stays(
    store: Store, project: Path, where: str
) -> None:
    run = plan.plan(store, recipe("first"))
    run.config.run_dir.mkdir(parents=True)
    if where == "config.yaml":
        run.write_config()
    else:
        (run.config.run_dir / where).parent.mkdir(parents=True)
        (run.config.run_dir / where).write_text(json.dumps(run.config.lineage))
    named = {store.root / asset["path"] for asset in run.config.lineage["assets"].values()}
    change(store, project)
    assert not named & {one.paths[0] for one in gc.find(store)}
    gc.remove(store, gc.find(store))
    assert all((path / "manifest.json").exists() for path in named)


DAMAGED = [
    *("name: [mine", "[]", '{"lineage": ', '{"lineage": [1]}', "", "{}", "null", "\0\0\0", "lineage: {}"),
    "lineage: {recipe: {name: first}}",
]


COMMANDS = ("gc", "gc --keep 1", "gc --delete", "disk", "forget first --reason x")


def test_a_damaged_configuration_is_named_and_nothing_is_removed(
    store: Store, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = plan.plan(store, recipe("first")).config.run_dir
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    change(store, project)
    before = files(store.root)
    for damage, command in product(DAMAGED, COMMANDS):
        (run / "config.yaml").write_text(damage)
        assert main(command.split()) == 2, (damage, command)
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith(f"error: {run / 'config.yaml'}"), (damage, command)
        assert "put it back from a copy" in said, (damage, command)
    assert files(store.root) == before


def test_a_recipe_in_a_lineage_that_cannot_be_read_is_named(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = plan.plan(store, recipe("first")).config.run_dir
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("lineage: {recipe: 3, assets: {}}")
    assert main(["disk"]) == 2
    assert f"{run / 'config.yaml'} is damaged (" in capsys.readouterr().err


@pytest.mark.parametrize("assets", ["[1]", "{raw: 1}", "{raw: {}}"])
def test_a_lineage_whose_versions_cannot_be_read_is_named(
    store: Store, capsys: pytest.CaptureFixture[str], assets: str
) -> None:
    run = plan.plan(store, recipe("first")).config.run_dir
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(f"lineage: {{assets: {assets}}}")
    assert main(["gc"]) == 2
    assert f"{run / 'config.yaml'} is damaged (" in capsys.readouterr().err


def test_files_that_killed_processes_left_are_removed_after_a_day(store: Store) -> None:
    """`write_atomically` of a killed process, in every folder of a store; not in what goes anyway."""
    run = store.root / keys.RUNS / "0123456789abcdef" / "checkpoints"
    partial = store.directory(keys.raw("first")) / ".0123456789abcdef.partial"
    folders = [store.root / keys.RECIPES / "mine", store.directory(keys.raw("first")), run, partial]
    left = [folder / ".raw.host-1234.tmp" for folder in folders]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    assert gc.find(store) == []
    kept = files(store.root) - {*left}
    yesterday = time.time() - 2 * gc.UNFINISHED_AFTER_SECONDS
    for path in (*left, partial):
        os.utime(path, (yesterday, yesterday))
    found = gc.find(store)
    assert {one.paths[0] for one in found} == {*left[:3], partial}
    assert [one.bytes for one in found] == [len("half")] * 4
    assert gc.remove(store, found) == found and files(store.root) == kept


def test_an_unfinished_attempt_is_kept_for_a_day_so_that_it_can_be_resumed(store: Store) -> None:
    partial = store.directory(keys.raw("first")) / ".0123456789abcdef.partial"
    partial.mkdir()
    assert gc.find(store) == []
    yesterday = time.time() - 2 * gc.UNFINISHED_AFTER_SECONDS
    os.utime(partial, (yesterday, yesterday))
    assert [one.paths[0] for one in gc.find(store)] == [partial]


def test_nothing_is_removed_while_a_run_prepares_data(store: Store, project: Path) -> None:
    change(store, project)
    found = gc.find(store)
    with store.in_progress(), pytest.raises(PipelineError, match="a run is preparing data in this store"):
        gc.remove(store, found)
    assert gc.remove(store, found) == found != []


def test_runs_with_other_settings_keep_their_data_until_they_are_old(store: Store, project: Path) -> None:
    thresholds = [round(0.5 + number / 100, 2) for number in range(last_versions.CHANGES_KEPT + 1)]
    made = [run(project, TEXTS[:15], dedup={"threshold": one}).current(keys.DEDUP).path for one in thresholds]
    garbage = {one.paths[0] for one in gc.find(store)}
    assert made[0] in garbage and not garbage & {store.current(keys.DEDUP).path, *made[1:]}
    (project / "mine.yaml").unlink()
    assert {store.current(keys.DEDUP).path, *made} <= {one.paths[0] for one in gc.find(store)}


@pytest.mark.parametrize("seed", range(8))
def test_what_a_recipe_or_a_run_can_reach_stays_and_all_else_goes(tmp_path: Path, seed: int) -> None:
    """Recipes with random settings make versions, of which some runs record the lineage; files of recipes
    are deleted in between.
    """
    chance = random.Random(seed)
    root, files = tmp_path / "store", [tmp_path / f"{number}.yaml" for number in range(4)]
    used: dict[Path, dict[str, Path]] = {}
    named: set[Path] = set()
    for turn in range(25):
        file = chance.choice(files)
        file.touch()
        name = RecipeName(f"recipe-{file.stem}", str(file))
        last = LastVersions(Store(root).files, name)
        key = chance.choice(KEYS)
        store = Store(root)
        with store.making(Work(key, "test", {"turn": chance.randrange(12)}, {})) as draft:
            version = draft if isinstance(draft, Version) else publish(draft)
        last.use(key, version.path.name)
        used.setdefault(file, {})[key] = version.path
        if chance.random() < 0.2:
            config = root / "runs" / f"{turn:016x}" / "config.yaml"
            config.parent.mkdir(parents=True)
            assets = {key: {"path": str(version.path.relative_to(root))}}
            config.write_text(yaml.safe_dump({"lineage": {"assets": assets, "dedup": {}}}))
            named.add(version.path)
        if chance.random() < 0.2:
            file.unlink()
            files[files.index(file)] = tmp_path / f"{turn}-again.yaml"
        if chance.random() < 0.3:
            store = Store(root)
            garbage = gc.find(store)
            assert gc.remove(store, garbage) == garbage and gc.find(store) == []
            kept = {path for one, paths in used.items() if one.exists() for path in paths.values()} | named
            there = {path.parent for path in root.rglob("manifest.json")}
            assert kept <= there
            assert {path for path in there - kept if path.parent.name != "tokenizer"} == set()
            records = (path for key in map("recipes/*/{}".format, KEYS) for path in root.glob(key))
            for record in records:
                key = record.relative_to(root / "recipes").as_posix().partition("/")[2]
                assert root / key / record.read_text().strip() in there


def publish(draft: Draft) -> Version:
    (draft.path / "content").write_text(draft.work.name)
    return draft.publish([Part("part", "test", {"content": File.of(draft.path / "content", draft.path)})])


def test_the_command_removes_nothing_unless_told_to(
    store: Store, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(store, project)
    before = files(store.root)
    assert main(["gc"]) == 0
    said = capsys.readouterr().out
    assert "token_shards/first/" in said and "the same command with --delete frees it" in said
    assert files(store.root) == before
    assert main(["gc", "--delete"]) == 0
    assert "freed" in capsys.readouterr().out
    for place in (store.root, project / "not made yet"):
        monkeypatch.setenv("GROUNDWORK_STORE", str(place))
        assert main(["gc"]) == 0
        assert "nothing to remove" in capsys.readouterr().out


def test_what_a_recipe_uses_stays_when_it_is_moved_together_with_the_store(tmp_path: Path) -> None:
    """To another folder or machine, where its file is found under another path."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    run(before, TEXTS[:15])
    before.rename(after)
    moved = Store(after / "store")
    assert gc.find(moved) == []
    run(after, TEXTS[:15])
    assert gc.find(moved) == []
    run(after, TEXTS[:9])  # from now on the recipe in the new place alone counts
    removed = gc.remove(moved, gc.find(moved))
    assert {one.place.rpartition("/")[0] for one in removed} >= {"corpora/first/raw", "token_shards/first"}
    (after / "mine.yaml").unlink()
    assert "corpora/first/raw" in {one.place.rpartition("/")[0] for one in gc.find(moved)}
