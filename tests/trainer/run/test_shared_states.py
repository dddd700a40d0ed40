"""A new run goes on from the newest state that it shares with another, and ends in the bytes of a training
from the first step.
"""

import copy
import hashlib
import logging
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

from tests.trainer.runs import history, outcome, stopped_at
from tests.trainer.trained import trained
from trainer.checkpoint import publish, retention, state
from trainer.config import RunConfig
from trainer.run.loop import DONE, run
from trainer.system.run_history import RunHistory

STEP = 256  # tokens
STAGES = [
    {"name": "trunk", "share": 0.5, "weights": {"prose": 1}},
    {"name": "anneal", "weights": {"prose": 1, "code": 1}, "schedule": {"kind": "linear"}},
]


@pytest.fixture
def settings(settings: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Runs of 12 steps in the same directory of runs, each of whose states stays on disk."""
    settings["runs"] = str(tmp_path / "runs")
    settings["training"] |= {
        "schedule": {"kind": "wsd", "warmup_tokens": 2 * STEP, "decay_fraction": 0.25},
        "checkpoint": {"every_tokens": STEP // 2, "keep_last": 99},
    }
    return settings


def train(settings: dict[str, Any], name: str, **training: Any) -> Path:
    return trained(settings, Path(settings["runs"]) / name, **training).run_dir


def trunks(run_dir: Path) -> list[dict[str, Any]]:
    last = publish.existing(run_dir / "checkpoints")[-1]
    found: list[dict[str, Any]] = state.read_state(last)["trunks"]
    return found


def reused(run_dir: Path) -> int:
    """The steps that the run did not train itself."""
    return max((trunk["step"] for trunk in trunks(run_dir)), default=0)


def states(run_dir: Path) -> dict[int, str]:
    """A hash of the weights and the optimizer's state after each step on disk."""
    found = {}
    for checkpoint in publish.existing(run_dir / "checkpoints"):
        files = [checkpoint / "hf/model.safetensors", *publish.optimizer_files(checkpoint)]
        content = b"".join(path.read_bytes() for path in files)
        found[publish.step_of(checkpoint)] = hashlib.sha256(content).hexdigest()
    return found


def from_scratch(settings: dict[str, Any], folder: Path, **training: Any) -> Path:
    return train({**settings, "runs": str(folder)}, "scratch", **training)


def edited(settings: dict[str, Any], corpus_dir: Path, chooser: random.Random) -> dict[str, Any]:
    """A configuration with one to three edits of kinds that people make."""
    changed = copy.deepcopy(settings)
    training = changed["training"]

    def horizon() -> None:
        training["max_tokens"] = STEP * chooser.choice([8, 10, 14, 16])

    def decay() -> None:
        training["schedule"] |= {"decay_fraction": chooser.choice([0.1, 0.4, 0.5])}

    def shape() -> None:
        training["schedule"] |= {"decay": "sqrt", "min_lr_ratio": chooser.choice([0, 0.1])}

    def kind() -> None:
        training["schedule"] = {"kind": "constant", "warmup_tokens": 2 * STEP}

    def last_stage() -> None:
        training["stages"] = copy.deepcopy(STAGES)
        training["stages"][-1]["weights"] = {"prose": chooser.choice([1, 2, 5]), "code": 1}

    def stage_more() -> None:
        training["stages"] = [
            {"name": "trunk", "until_tokens": 6 * STEP, "weights": {"prose": 1}},
            {"name": "middle", "until_tokens": 8 * STEP, "weights": {"code": 1}},
            {"name": "end", "lr_multiplier": chooser.choice([0.5, 1.0]), "seq_len": chooser.choice([16, 32])},
        ]

    def rate_from_a_step_on() -> None:
        training["stages"] = [
            {"name": "first", "until_tokens": STEP * chooser.choice([3, 5])},
            {"name": "then", "lr_multiplier": chooser.choice([0.5, 2.0])},
        ]

    def weights() -> None:
        changed["data"]["corpora"][0]["weight"] = chooser.choice([1, 2, 6])

    def data() -> None:
        corpus = changed["data"]["corpora"][chooser.randrange(2)]
        corpus["train"] = [str(corpus_dir / "prose-1")]

    def batch() -> None:
        training["global_batch_tokens"] = chooser.choice([128, 512])

    def seed() -> None:
        training["seed"] = chooser.choice([5, 6])

    def rate() -> None:
        training["optimizer"] = {"kind": "muon", "muon_lr": chooser.choice([0.01, 0.02])}

    def operational() -> None:
        training["evaluation"] = {"every_tokens": STEP * chooser.choice([2, 4]), "micro_batch_size": 2}
        training["samples"] = {"prompts": ["the"], "max_new_tokens": 2}
        training["log_every_steps"] = 2

    kinds = [horizon, decay, shape, kind, last_stage, stage_more, rate_from_a_step_on, weights, data, batch]
    for edit in chooser.sample([*kinds, seed, rate, operational], chooser.randint(1, 3)):
        edit()
    return changed


@pytest.mark.parametrize(
    "seed, edits, packing",
    [
        (0, 4, "windows"),
        pytest.param(0, 12, "windows", marks=pytest.mark.slow),
        pytest.param(1, 200, "windows", marks=pytest.mark.slow),
        pytest.param(2, 40, "documents", marks=pytest.mark.slow),
    ],
)
def test_edits_reuse_the_true_common_prefix_and_end_in_the_same_bytes(
    settings: dict[str, Any], corpus_dir: Path, tmp_path: Path, seed: int, edits: int, packing: str
) -> None:
    settings["training"]["packing"] = packing
    chooser = random.Random(seed)
    known = states(train(settings, "first"))
    shared: dict[int, set[str]] = {step: {name} for step, name in known.items()}
    most = 0
    for number in range(edits):
        changed = edited(settings, corpus_dir, chooser)
        try:
            RunConfig.model_validate(changed)
        except ValueError:  # edits that do not fit together
            continue
        scratch = from_scratch(changed, tmp_path / f"alone-{number}")
        own = states(scratch)
        common = max(
            (step for step in own if step < max(own) and own[step] in shared.get(step, ())), default=0
        )
        went_on = train(changed, f"edited-{number}")
        assert reused(went_on) == common, (number, changed["training"], changed["data"]["corpora"])
        assert states(went_on)[max(own)] == own[max(own)]
        for step, name in own.items():
            shared.setdefault(step, set()).add(name)
        most += common > 0
        shutil.rmtree(tmp_path / f"alone-{number}")
    assert most >= edits // 3  # or this test would compare nothing


def test_a_longer_run_says_where_it_goes_on_and_has_the_whole_history(
    settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(settings, "short")
    caplog.set_level(logging.INFO, "trainer")
    long = train(settings, "long", max_tokens=16 * STEP)
    assert "continuing from short at step 9 of 16: 2,304 tokens are trained already" in caplog.text
    assert trunks(long) == [{"run": "short", "step": 9, "tokens": 9 * STEP}]
    scratch = from_scratch(settings, tmp_path / "alone", max_tokens=16 * STEP)
    assert outcome(long)[:2] == outcome(scratch)[:2]
    ours, theirs = ([one for one in history(of) if one["kind"] == "train"] for of in (long, scratch))
    assert ours == theirs


def test_by_default_the_states_at_which_runs_part_stay_with_their_optimizer(settings: dict[str, Any]) -> None:
    settings["training"]["checkpoint"] = {"every_tokens": 99 * STEP, "keep_last": 1}
    schedule = {"kind": "wsd", "warmup_tokens": 0, "decay_fraction": 0.75}
    train(settings, "one", stages=STAGES, schedule=schedule)
    assert sorted(states(Path(settings["runs"]) / "one")) == [3, 6, 12]
    other = copy.deepcopy(STAGES)
    other[-1]["weights"] = {"code": 1}
    assert reused(train(settings, "two", stages=other, schedule=schedule)) == 6
    kept = {"every_tokens": 99 * STEP, "keep_last": 1, "keep_branch_points": False}
    assert sorted(states(train(settings, "three", checkpoint=kept, seed=9))) == [12]


def test_a_state_without_optimizer_or_with_damage_gives_way_to_an_earlier_one(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    first = train(settings, "first")
    checkpoints = publish.existing(first / "checkpoints")
    (checkpoints[8] / "hf/model.safetensors").write_bytes(b"damaged")
    (checkpoints[7] / "manifest.json").write_text("{")
    caplog.set_level(logging.INFO, "trainer")
    long = train(settings, "long", max_tokens=16 * STEP)
    assert reused(long) == 7
    assert "not continuing from first at step 9" in caplog.text and "differs from its manifest" in caplog.text
    caplog.clear()
    retention.drop_optimizers(checkpoints[6], of_newest=True)
    shutil.rmtree(long)
    shutil.rmtree(train(settings, "longer", max_tokens=20 * STEP))
    assert "first at step 7 holds the model only (training.checkpoint.optimizer)" in caplog.text


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="a GPU promises no last bits, so all its states are alike"
)
def test_a_state_computed_otherwise_is_taken_only_when_that_is_asked_for(
    settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(settings, "first")
    caplog.set_level(logging.INFO, "trainer")
    exact = train(settings, "exact", max_tokens=16 * STEP, micro_batch_size=2)
    assert reused(exact) == 0
    assert "micro_batch_size 4 then, 2 now" in caplog.text and "shared_states: rounded" in caplog.text
    shutil.rmtree(exact)
    rounded = train(settings, "rounded", max_tokens=16 * STEP, micro_batch_size=2, shared_states="rounded")
    assert reused(rounded) == 9
    # Its own states are of both kinds, so that nobody takes them for exact ones.
    again = train(settings, "again", max_tokens=20 * STEP, micro_batch_size=2)
    assert reused(again) == 0
    none = train(settings, "none", max_tokens=14 * STEP, shared_states="none")
    assert trunks(none) == []
    assert states(none)[14] == states(from_scratch(settings, tmp_path / "s", max_tokens=14 * STEP))[14]


def test_the_run_that_went_on_needs_nothing_of_the_other(settings: dict[str, Any], tmp_path: Path) -> None:
    first = train(settings, "first")
    long = train(settings, "long", max_tokens=16 * STEP)
    shutil.rmtree(first)
    for checkpoint in publish.existing(long / "checkpoints"):
        publish.verify(checkpoint)
        if publish.step_of(checkpoint) > 9:
            shutil.rmtree(checkpoint)
    train(settings, "long", max_tokens=16 * STEP)  # resumes from the state that was shared
    scratch = from_scratch(settings, tmp_path / "alone", max_tokens=16 * STEP)
    assert outcome(long)[:2] == outcome(scratch)[:2]


def test_a_run_that_was_overtaken_goes_on_from_the_further_state(
    settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scratch = from_scratch(settings, tmp_path / "alone", max_tokens=16 * STEP)
    long = shutil.copytree(scratch, Path(settings["runs"]) / "long")
    stopped_at(long, 4)
    train(settings, "short")
    caplog.set_level(logging.INFO, "trainer")
    train(settings, "long", max_tokens=16 * STEP)
    assert "continuing from short at step 9 of 16" in caplog.text
    # short itself had gone on from long
    assert trunks(long) == [
        {"run": "long", "step": 4, "tokens": 4 * STEP},
        {"run": "short", "step": 9, "tokens": 9 * STEP},
    ]
    assert RunHistory(long).reused_tokens == 5 * STEP
    assert outcome(long) == outcome(scratch)
    stopped_at(long, 10)
    caplog.clear()
    train(settings, "long", max_tokens=16 * STEP)  # its own state is further now
    assert "continuing from" not in caplog.text and outcome(long) == outcome(scratch)


def test_a_run_whose_settings_changed_on_the_way_goes_on_from_its_own_state(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    long = train(settings, "long", max_tokens=16 * STEP, seed=9)
    stopped_at(long, 4)
    train(settings, "short", seed=9, z_loss=1e-3)
    caplog.set_level(logging.INFO, "trainer")
    changed = {**settings["training"], "max_tokens": 16 * STEP, "seed": 9, "z_loss": 1e-3}
    config = RunConfig.model_validate({**settings, "run_dir": str(long), "training": changed})
    assert run(config, allow_changes=True) == DONE
    assert "the settings changed after step 4" in caplog.text and "continuing from" not in caplog.text


def test_tensorboard_draws_the_shared_steps_once(settings: dict[str, Any]) -> None:
    train(settings, "short")
    long = train(settings, "long", max_tokens=16 * STEP)

    def drawn() -> list[int]:
        events = EventAccumulator(str(long / "tensorboard"), {SCALARS: 0})
        return [event.step for event in events.Reload().Scalars("train/loss")]

    assert drawn() == list(range(1, 17))
    stopped_at(long, 9)  # killed before its first checkpoint
    train(settings, "long", max_tokens=16 * STEP)
    assert drawn() == list(range(1, 17))


def test_validations_on_other_text_are_not_taken_over(settings: dict[str, Any], corpus_dir: Path) -> None:
    train(settings, "first", stages=STAGES)
    for corpus in settings["data"]["corpora"][1:]:  # read in the second stage only
        corpus["train"] = [str(corpus_dir / "prose-1")]
    other = train(settings, "other", stages=STAGES)
    assert reused(other) == 6
    evaluations = [one["step"] for one in history(other) if one["kind"] == "evaluation"]
    assert evaluations == [6, 12]  # step 6 is measured again, on the text of this run
