"""What is damaged in a store is named, with what was made from it and what mends it; and that mends it."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.operations.verification import daily_schedule, verify_job
from pipeline.assets.used_recipe import OWN
from pipeline.cli import main
from pipeline.recipe.loading import load_recipe
from pipeline.steps.lineage import record
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.verification import longest_unread, stored, verify
from pipeline.store import keys
from pipeline.store.cleanup.gc import discard
from pipeline.store.damage import DamageError
from pipeline.store.files import MANIFEST, reports_on
from pipeline.store.keys import Key
from pipeline.store.last_versions import LastVersions, RecipeName
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError
from tests.pipeline.steps.corpora import TEXTS, as_it_was, prepare
from tests.pipeline.steps.training.test_plan import make_shards, recipe
from tests.pipeline.store.cleanup.test_gc import DAMAGED
from tests.pipeline.store.test_damage import flip, flip_in_silence
from trainer.checkpoint.publish import publish

KEYS = [
    keys.raw("first"),
    keys.scrubbed("first"),
    keys.quality("first"),
    keys.signatures("first"),
    keys.DEDUP,
    keys.token_shards("first"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's file, beside a store with its shards and a checkpoint."""
    path = tmp_path_factory.mktemp("verified") / "mine.yaml"
    path.write_text(yaml.safe_dump(recipe("first").model_dump(mode="json")))
    run(path)
    lineage = json.dumps(record.of_recipe(seen_by(path), load_recipe(path)))
    checkpoint = path.parent / "store" / "runs" / "0123456789abcdef" / "checkpoints" / "step-00000010"
    publish(checkpoint, lambda directory: (directory / "lineage.json").write_text(lineage) and None)
    return path


@pytest.fixture
def mine(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("GROUNDWORK_STORE", str(made.parent / "store"))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(made))
    with as_it_was(made.parent):
        yield made


def seen_by(path: Path) -> Store:
    return Store(path.parent / "store", RecipeVersions(load_recipe(path)))


def run(path: Path) -> None:
    """What `dagster job execute -j retokenize` makes."""
    store = seen_by(path)
    prepare(store, path.parent / "first.jsonl", TEXTS[:15])
    make_shards(store, load_recipe(path))


def content(path: Path) -> dict[str, str]:
    return {key: seen_by(path).current(key).data_version for key in [*KEYS, keys.TOKENIZER]}


def a_file(version: Version) -> Path:
    return sorted(version.path.rglob("*.*"))[-1]


FAULTS: list[Callable[[Version], object]] = [
    lambda it: shutil.rmtree(it.path),
    lambda it: (it.path / MANIFEST).write_text("{"),
    lambda it: a_file(it).unlink(),
    lambda it: os.truncate(a_file(it), 5),
    lambda it: flip(a_file(it), 9),
]


@pytest.mark.parametrize(("key", "fault"), list(zip(KEYS, [*FAULTS, FAULTS[0]], strict=True)))
def test_what_a_message_says_to_do_about_damage_helps(
    mine: Path, key: Key, fault: Callable[[Version], object]
) -> None:
    check_remedy(mine, key, fault)


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("fault", FAULTS, ids=["deleted", "manifest", "file deleted", "cut", "flipped"])
def test_what_a_message_says_to_do_about_any_damage_of_any_key_helps(
    mine: Path, key: Key, fault: Callable[[Version], object]
) -> None:
    check_remedy(mine, key, fault)


def check_remedy(mine: Path, key: Key, fault: Callable[[Version], object]) -> None:
    before = content(mine)
    fault(seen_by(mine).current(key))
    with pytest.raises((StoreError, DamageError), match=r": materialize .*(it|makes it again|first)"):
        seen_by(mine).current(key)
    run(mine)
    assert content(mine) == before


def test_damage_is_named_with_what_was_made_from_it_and_the_command(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify"]) == 0
    assert re.search(r"nothing is damaged in \d+ versions and checkpoints", capsys.readouterr().out)
    before, store = content(mine), seen_by(mine)
    scrubbed, shards = store.current(keys.scrubbed("first")), store.current(keys.token_shards("first"))
    flip(scrubbed.files("documents")[0].path, 999)
    (shards.path / MANIFEST).unlink()
    assert main(["verify"]) == 2
    said = capsys.readouterr()
    assert f"DAMAGED  {scrubbed.files('documents')[0]} is corrupt" in said.out
    assert f"DAMAGED  {shards.path / MANIFEST} is missing or damaged" in said.out
    assert f"made from it  {store.current('corpora/first/quality').path.relative_to(store.root)}" in said.out
    assert said.out.count("made from it  01234567-00000010") == 2
    assert f"GROUNDWORK_RECIPE={mine} dagster job execute -j corpus\n" in said.out
    assert f"GROUNDWORK_RECIPE={mine} dagster job execute -j retokenize\n" in said.out
    assert said.err.startswith("error: 2 of ") and said.err.count("\n") == 1
    run(mine)
    assert content(mine) == before and main(["verify", "--deep"]) == 0


def test_what_leaves_no_trace_is_found_by_reading_everything_and_then_made_again(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(mine)
    shard = next(seen_by(mine).current(keys.token_shards("first")).path.rglob("train/*.bin"))
    weights = next((mine.parent / "store" / "runs").rglob("lineage.json"))
    assert main(["verify"]) == 0
    flip_in_silence(shard)
    flip_in_silence(weights)
    assert main(["verify"]) == 0
    assert main(["verify", "--deep"]) == 2
    said = capsys.readouterr().out
    assert f"DAMAGED  {shard} is corrupt" in said and f"DAMAGED  {weights} is corrupt" in said
    assert f"rm -r {weights.parent}; " in said
    run(mine)
    shutil.rmtree(weights.parent)
    assert content(mine) == before and main(["verify", "--deep"]) == 0


def test_the_job_fails_on_damage_and_its_schedule_reads_what_was_not_read_for_longest(mine: Path) -> None:
    job = verify_job("", OWN)
    resources = {"workshop": PipelineResources()}
    assert job.execute_in_process(resources=resources).success
    shard = next(seen_by(mine).current(keys.token_shards("first")).path.rglob("train/*.bin"))
    flip_in_silence(shard)
    assert job.execute_in_process(resources=resources, raise_on_error=False).success
    schedule = daily_schedule(job, "UTC", OWN)
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    request = schedule.evaluate_tick(dg.build_schedule_context()).run_requests[0]
    deep = job.execute_in_process(request.run_config, resources=resources, raise_on_error=False)
    assert not deep.success


def test_a_version_that_is_gone_is_damage(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scrubbed = seen_by(mine).current(keys.scrubbed("first")).path
    shutil.rmtree(scrubbed)
    assert main(["verify"]) == 2
    said = capsys.readouterr().out
    assert f"DAMAGED  {scrubbed} is gone, although a recipe uses it" in said
    assert "made from it  01234567-00000010" in said
    assert f"to repair it  GROUNDWORK_RECIPE={mine} dagster job execute -j corpus\n" in said
    run(mine)
    assert main(["verify"]) == 0


def test_what_only_a_checkpoint_was_made_from_is_mended_by_reproducing_it(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(a_file(seen_by(mine).current(keys.token_shards("first"))), 9)
    mine.unlink()
    monkeypatch.delenv("GROUNDWORK_RECIPE")
    assert main(["verify"]) == 2
    remedy = "python -m pipeline reproduce 01234567-00000010 -o OUT, since no recipe uses it any more\n"
    assert f"to repair it  {remedy}" in capsys.readouterr().out


@pytest.mark.parametrize(("objective", "job"), [("pretrain", "pretrain"), ("sft", "sft"), ("dpo", "align")])
def test_a_damaged_checkpoint_is_mended_by_the_job_that_trains_its_run(
    mine: Path, capsys: pytest.CaptureFixture[str], objective: str, job: str
) -> None:
    store = seen_by(mine)
    (checkpoint,) = (store.root / "runs").glob("*/checkpoints/step-*")
    config = {"training": {"objective": objective}, "lineage": {}}
    (checkpoint.parents[1] / "config.yaml").write_text(yaml.safe_dump(config))
    (checkpoint / "lineage.json").unlink()
    assert main(["verify"]) == 2
    said = capsys.readouterr().out
    assert f"if it is the last one of its run, `dagster job execute -j {job}` then trains on" in said
    used = LastVersions(store.files, RecipeName("mine", str(mine)))
    used.use(keys.PRETRAINED_MODEL, checkpoint.parents[1].name)
    assert main(["verify"]) == 2
    assert f"`GROUNDWORK_RECIPE={mine} dagster job execute -j pretrain` then" in capsys.readouterr().out


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_configuration_for_which_gc_removes_nothing_is_damaged(
    mine: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    (run,) = (mine.parent / "store" / "runs").glob("*")
    (run / "config.yaml").write_text(damage)
    assert main(["gc"]) == 2 and f"error: {run / 'config.yaml'} is damaged" in capsys.readouterr().err
    assert main(["verify"]) == 2 and "config.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("moment", range(1, 4))
def test_a_removal_that_was_killed_leaves_nothing_that_names_what_is_gone(
    mine: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Killed at its `moment`th directory: then the version is whole, or no report and record tells of it."""
    store = seen_by(mine)
    version = store.current(keys.token_shards("first"))
    reports = reports_on(version.path)
    reports.mkdir()
    moments = iter(range(moment - 1))

    def dies(path: Path, ignore_errors: bool = False) -> None:
        if next(moments, None) is None:
            raise SystemExit
        rmtree(path, ignore_errors)

    rmtree = shutil.rmtree
    with monkeypatch.context() as killed, pytest.raises(SystemExit):
        killed.setattr(shutil, "rmtree", dies)
        discard(store, version.path)
    if not version.path.exists():
        assert main(["verify", "--deep"]) == 0
        assert not reports.exists()


def test_a_run_that_is_half_removed_is_not_damaged(mine: Path) -> None:
    (run,) = (mine.parent / "store" / "runs").iterdir()
    half = run.rename(run.with_name(f".{run.name}.tmp"))
    next(half.rglob("lineage.json")).unlink()
    assert main(["verify", "--deep"]) == 0


def test_the_files_of_a_copied_store_are_read(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = mine.parent / "copy"
    shutil.copytree(mine.parent / "store", copy)
    flip_in_silence(next((copy / "token_shards").rglob("train/*.bin")))
    monkeypatch.setenv("GROUNDWORK_STORE", str(copy))
    assert main(["verify"]) == 2


@pytest.mark.parametrize(
    ("variant", "command"),
    [
        ("loose", """-j corpus --tags '{"dagster/partition": "loose"}'"""),
        ("loose/sft", """-j sft --tags '{"dagster/partition": "loose"}'"""),
        ("sft", "-j sft"),
    ],
)
def test_damage_of_a_variant_is_mended_in_its_partition(
    mine: Path, capsys: pytest.CaptureFixture[str], variant: str, command: str
) -> None:
    described = next((mine.parent / "store" / "recipes").glob("*/recipe.json"))
    described.write_text(json.dumps({**json.loads(described.read_text()), "variant": variant}))
    flip(seen_by(mine).current(keys.scrubbed("first")).files("documents")[0].path, 999)
    added = {"variants": {"loose": {}}, "post_training": {"sft": {}}}
    mine.write_text(yaml.safe_dump({**yaml.safe_load(mine.read_text()), **added}))
    assert main(["verify"]) == 2
    assert f"{command}\n" in capsys.readouterr().out


def test_a_share_of_the_store_is_read_in_the_time_given(mine: Path) -> None:
    store = seen_by(mine)
    everything = set(stored(store))
    assert set(longest_unread(store, 1)) == everything
    shard = store.current(keys.token_shards("first")).path
    verify(store, everything - {shard}, deep=True)
    reading = longest_unread(store, 1e-9)
    assert list(reading) in ([], [shard])
    assert next(longest_unread(store, 1)) == shard


def test_where_there_is_no_store_nothing_is_called_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "nowhere"))
    assert main(["verify"]) == 2
    assert f"{tmp_path}/nowhere is not a directory" in capsys.readouterr().err
