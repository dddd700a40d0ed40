"""Whatever was damaged, cut off or put into a store: `gc` keeps what anything names, or removes nothing."""

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.store import keys
from pipeline.store.cleanup import gc
from pipeline.store.cleanup.old_runs import Limits
from pipeline.store.draft import Draft
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.last_versions import LastVersions, RecipeName
from pipeline.store.store import Store
from pipeline.store.work import Work
from tests.pipeline.store.cleanup.test_gc import publish

KEYS = ("corpora/first/raw", "corpora/first/scrubbed", "dedup", "token_shards/first")
COPIES = ("copies", "corpora/copies", "corpora/first/raw/kept")


def versions(root: Path, recipe: Path, turn: int) -> dict[str, Path]:
    """Versions of the keys of a corpus, which the recipe uses from now on."""
    last = LastVersions(Store(root).files, RecipeName("first-0", str(recipe)))
    made = {}
    for key in map(Key.from_path, KEYS):
        with Store(root).making(Work(key, "test", {"turn": turn}, {})) as draft:
            assert isinstance(draft, Draft)
            made[str(key)] = publish(draft).path
        last.use(key, made[str(key)].name)
    return made


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, Path, set[Path]]:
    """A store, a run whose recipe has gone on to other texts, and the versions that the run names."""
    root, recipe = tmp_path / "store", tmp_path / "mine.yaml"
    monkeypatch.setenv("GROUNDWORK_STORE", str(root))
    recipe.touch()
    made = versions(root, recipe, 0)
    assets = {key: {"path": str(path.relative_to(root)), "counts": {}} for key, path in made.items()}
    lineage = {"recipe": {"name": "first"}, "git_commit": None, "assets": assets, "dedup": {"first": {}}}
    config = root / "runs" / "0123456789abcdef" / "config.yaml"
    saved = config.parent / "checkpoints" / "step-00000008" / "lineage.json"
    saved.parent.mkdir(parents=True)
    saved.write_text(json.dumps(lineage))
    whole = {"run_dir": str(config.parent), "training": {"seq_len": 64}, "name": "first", "lineage": lineage}
    config.write_text(yaml.safe_dump(whole, sort_keys=False))
    versions(root, recipe, 1)
    return Store(root), config, set(made.values())


def manifests(root: Path) -> set[Path]:
    return {path.parent for path in root.rglob("manifest.json")}


def collected(store: Store) -> str:
    """Removes garbage, and all but the newest run; what `gc` says instead, if it refuses."""
    try:
        gc.remove(store, gc.find(store, Limits(runs=1)))
    except PipelineError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["config.yaml", "lineage.json"])
def test_a_lineage_that_was_cut_off_or_emptied_lets_nothing_be_removed(
    trained: tuple[Store, Path, set[Path]], name: str
) -> None:
    """Where the file of the run, or of its checkpoint, is the only one that says what it was made from."""
    store, config, named = trained
    both = {path.name: path for path in (config, *config.parent.glob("checkpoints/*/lineage.json"))}
    path = both.pop(name)
    both.popitem()[1].unlink()
    lines, chance = path.read_text().splitlines(keepends=True), random.Random(1)
    cuts = ["".join(lines[: chance.randrange(len(lines))]) for _ in range(12)]
    for text in [*cuts, "", "{}", "null", "[]", "lineage: {}", '{"assets": {}}', "\0" * 100]:
        path.write_text(text)
        before = manifests(store.root)
        said = collected(store)
        assert named <= manifests(store.root), text
        if said:
            assert manifests(store.root) == before and said.startswith(f"{path} is damaged (")
            assert "nothing is removed: put it back from a copy, or remove" in said


def _without_description(record: Path) -> None:
    record.unlink()


def _emptied(record: Path) -> None:
    record.write_text("")


def _of_nothing(record: Path) -> None:
    record.write_text("{}")


@pytest.mark.parametrize("damage", [_without_description, _emptied, _of_nothing])
def test_versions_whose_recipe_cannot_be_told_any_more_stay(
    trained: tuple[Store, Path, set[Path]], capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    store, *_ = trained
    (described,) = store.root.glob("recipes/*/recipe.json")
    damage(described)
    before = manifests(store.root)
    assert main(["gc", "--delete"]) == 2
    assert "so it cannot be told which versions a recipe uses: run a job" in capsys.readouterr().err
    assert manifests(store.root) == before


def test_copies_and_directories_of_somebody_else_are_no_garbage(
    trained: tuple[Store, Path, set[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    store, *_ = trained
    versions(store.root, store.root.parent / "mine.yaml", 2)  # so that there is some garbage
    raw = store.directory(keys.raw("first"))
    for name in COPIES:  # with the locks beside the versions
        shutil.copytree(raw, store.root / name, ignore=shutil.ignore_patterns("kept"))
    foreign = store.root / "site" / "0123456789abcdef"
    foreign.mkdir(parents=True)
    (foreign / "manifest.json").write_text('{"name": "a web page"}')
    (store.root / "notes with spaces.txt").write_text("mine")
    put = {path for name in (*COPIES, "site") for path in manifests(store.root / name)}
    assert main(["gc", "--delete"]) == 0
    assert put <= manifests(store.root) and "corpora/first/raw/" in capsys.readouterr().out


def test_an_attempt_that_was_at_work_within_a_day_is_resumed_however_long_ago_it_began(
    trained: tuple[Store, Path, set[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    store, *_ = trained
    partial = store.directory(keys.raw("first")) / ".0123456789abcdef.partial"
    (partial / "documents").mkdir(parents=True)
    (partial / "documents" / "first").write_text("a part")
    os.utime(partial, (time.time() - 1e6, time.time() - 1e6))
    assert main(["gc", "--delete"]) == 0
    assert (partial / "documents" / "first").exists()
