"""The length of a training is decided anew so that everything ends at the deadline, whatever the load."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from pipeline.start.following import Following
from pipeline.start.horizon import AIM, FINISHING, RESTARTING, Horizon, Standing

PROGRAM = 6.0  # seconds that one takes to start on an idle machine
BATCH = 2_048


@dataclass
class Machine:
    """`load` says for each second how many times longer everything takes than on an idle machine."""

    load: Callable[[float], float]
    now: float = 0.0

    def works(self, seconds: float) -> None:
        while seconds > 0:
            step = min(0.1, seconds)
            self.now, seconds = self.now + step * self.load(self.now), seconds - step


def ended(given: float, load: Callable[[float], float], planned: Horizon, speed: float) -> tuple[float, int]:
    """When a start ends that trains for as long as was `planned`, and how often it changed that."""
    machine, tokens, changes = Machine(load), 0, 0
    machine.works(3 * PROGRAM)
    while True:
        following = Following(Path("nowhere"), "", 0, PROGRAM, clock=lambda: machine.now)
        began = machine.now
        machine.works(PROGRAM)
        following.program_seconds = math.sqrt(PROGRAM * (machine.now - began))
        stops = False
        while tokens < planned.tokens and not stops:
            machine.works(planned.batch / speed)
            tokens += planned.batch
            if not following.pace or machine.now - following.pace[-1][0] >= 5:
                following.pace.append((machine.now, tokens))
            standing = following.standing(left=given - machine.now, given=given, programs=FINISHING)
            stops = standing is not None and standing.must_change(planned)
        if standing is None or not stops:
            machine.works(FINISHING * PROGRAM)
            return machine.now, changes
        planned, changes = replace(standing, tokens=tokens).fitting(planned), changes + 1
        tokens = min(tokens, planned.stable)
        machine.works((RESTARTING - 1) * PROGRAM)


LOADS: dict[str, Callable[[float], float]] = {
    "idle": lambda _: 1.0,
    "twice as slow": lambda _: 2.0,
    "slower from the first minute on": lambda now: 1.0 if now < 60 else 1.7,
    "slower for the first third": lambda now: 2.0 if now < 200 else 1.0,
    "slower every other minute": lambda now: 1.0 if now % 120 < 60 else 2.0,
    "faster than measured": lambda _: 0.6,
}


@pytest.mark.parametrize("given", [600.0, 1_800.0, pytest.param(7_200.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("batch", "speed"), [(2_048, 9_000.0), (2_048, 700.0), (32_768, 9_000.0)])
@pytest.mark.parametrize("load", LOADS)
def test_everything_ends_at_the_deadline_whatever_the_load(
    given: float, batch: int, speed: float, load: str
) -> None:
    seconds = AIM * given - (4 + FINISHING) * PROGRAM
    planned = Horizon(int(seconds * speed // batch) * batch, batch, 10**9 * batch, 10 * batch)
    end, changes = ended(given, LOADS[load], planned, speed)
    assert 0.9 * given <= end <= 1.1 * given
    assert changes <= 2
    if load == "idle":
        assert changes == 0


@pytest.mark.parametrize("given", [180.0, 600.0, 1_800.0])
def test_what_starting_programs_did_not_take_is_trained(given: float) -> None:
    """A training that would end early is lengthened, also if the restart takes half of the time gained."""
    seconds = AIM * given - 1.4 * (4 + FINISHING) * PROGRAM
    planned = Horizon(int(seconds * 9_000 // BATCH) * BATCH, BATCH, 10**9 * BATCH, 10 * BATCH)
    assert 0.94 * given <= ended(given, lambda _: 0.95, planned, 9_000)[0] <= given


def test_a_text_that_is_worth_no_longer_training_ends_it_before_the_deadline() -> None:
    standing = Standing(tokens=69_000, seconds_a_token=1e-4, program_seconds=5, left=3_000, given=3_600)
    planned = Horizon(100_352, BATCH, most=100_352, warmup=10_000)
    assert not standing.must_change(planned)
    assert standing.must_change(replace(planned, most=10**9))


@pytest.mark.parametrize(
    ("most", "said"),
    [
        (10**9, "lengthened from 100,352 to end in time"),
        (200_704, "lengthened from 100,352 to all that the text is worth"),
    ],
)
def test_a_change_says_whether_the_time_or_the_text_ends_the_training(most: int, said: str) -> None:
    standing = Standing(tokens=69_000, seconds_a_token=1e-4, program_seconds=5, left=3_000, given=3_600)
    planned = Horizon(100_352, BATCH, most=most, warmup=10_000)
    assert standing.fitting(planned).changed_from(planned.tokens) == said


def test_a_length_is_not_changed_when_that_would_end_no_sooner() -> None:
    """As with a deadline that is shorter than what a program takes to start."""
    standing = Standing(tokens=60_000, seconds_a_token=1e-4, program_seconds=20, left=-30, given=40)
    assert not standing.must_change(Horizon(100_352, BATCH, 10**9, 10_000))


def test_a_shorter_training_shares_all_steps_that_are_done() -> None:
    standing = Standing(tokens=500_000, seconds_a_token=1e-3, program_seconds=5, left=100, given=900)
    planned = Horizon(1_000_448, BATCH, 10**9, 81_920)
    shorter = standing.fitting(planned)
    assert 500_000 <= shorter.stable < shorter.tokens < planned.tokens
    assert shorter.warmup == planned.warmup


@pytest.mark.parametrize("went_on", [False, True], ids=["everything stopped", "the training went on"])
def test_time_in_which_nothing_ran_says_nothing_about_the_speed(tmp_path: Path, went_on: bool) -> None:
    now = 100.0
    following = Following(tmp_path, "mine", 4_096, program_seconds=7.0, clock=lambda: now)
    (tmp_path / "run").mkdir()
    config = {"project": "mine", "training": {"max_tokens": 4_096}}
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(config))
    os.utime(tmp_path / "run" / "config.yaml", (1, 1))  # the clock was set back meanwhile

    def say(**payload: object) -> None:
        with (tmp_path / "run" / "messages.jsonl").open("a") as file:
            file.write(json.dumps({"params": {"payload": payload}}) + "\n")

    following.look()
    now += 1_000  # while the trainer starts
    say(kind="start")
    following.look()
    assert following.program_seconds == 7.0
    for tokens in range(0, 40_000, 1_000):
        now += 3_600 if tokens == 30_000 else 1
        done = tokens + 3_599_000 if went_on and tokens >= 30_000 else tokens
        say(kind="metrics", tokens=done)
        following.look()
    assert following.seconds_a_token == pytest.approx(0.001, rel=0.1)
    assert following.paused == (0 if went_on else 3_600)


def test_a_training_is_followed_by_the_messages_of_its_trainer(tmp_path: Path) -> None:
    now = 100.0
    following = Following(tmp_path, "mine", 4_096, program_seconds=7.0, clock=lambda: now)
    following.look()
    assert following.standing(left=60, given=180, programs=FINISHING) is None
    for name, project, tokens in (
        ("0" * 16, "another", 4_096),
        ("1" * 16, "mine", 4_096),
        ("2" * 16, "mine", 2_048),
    ):
        (tmp_path / name / "checkpoints" / "step-00000002").mkdir(parents=True)
        config = {"project": project, "training": {"max_tokens": tokens}}
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(config))
    following.look()
    saved = tmp_path / ("1" * 16) / "checkpoints" / "step-00000002"
    for name, content in (("state.json", {"tokens": 4_096}), ("manifest.json", {})):
        (saved / name).write_text(json.dumps(content))
    messages = saved.parents[1] / "messages.jsonl"

    def say(**payload: object) -> None:
        with messages.open("a") as file:
            file.write(json.dumps({"method": "report_custom_message", "params": {"payload": payload}}) + "\n")

    now = 107.0
    say(kind="start")
    following.look()
    for tokens in (0, 20_000, 30_000, 40_000):
        say(kind="metrics", tokens=tokens)
        following.look()
        now += 10
    standing = following.standing(left=60, given=180, programs=FINISHING)
    # 40 seconds say little about ten minutes
    assert following.standing(left=60, given=600, programs=FINISHING) is None
    assert standing is not None
    assert standing.program_seconds == pytest.approx(7)
    assert standing.seconds_a_token == 0.001
    assert standing.tokens == 50_000  # ten seconds after the last message
    assert following.saved_tokens == 4_096
