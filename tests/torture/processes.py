"""Processes that are killed, stopped, crossed or whose clock jumps."""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.torture.faults import DAMAGES, some_file
from tests.torture.world import CHANGES, SAME, SENTENCE, Ended, FindingError, World, outcome_of, worst
from tests.trainer import runs
from trainer.system.errors import RESUMABLE, USER_ERROR

FAKED = "*/faketime/libfaketimeMT.so.1"  # Debian's package `faketime`


def disturbed(
    world: World, process: "subprocess.Popen[str]", chance: random.Random, stage: str = ""
) -> Ended | None:
    """Sends a signal at some moment. Returns how a run ended if the signal did not end it. `stage` is, when
    not given, the one that wrote last.
    """
    time.sleep(chance.uniform(0, 8))
    number = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
    if process.poll() is not None:
        return world.ended(process)
    world.fault(number.name, stage or world.last_stage())
    if number == signal.SIGSTOP:
        os.killpg(process.pid, number)
        time.sleep(chance.uniform(0, 3))
        os.killpg(process.pid, signal.SIGCONT)
        return world.ended(process)
    process.send_signal(number)
    world.ended(process)
    return None


def killed(world: World, chance: random.Random) -> str:
    """A run that is killed, terminated or stopped for a while, perhaps twice, and then run again."""
    overrides = chance.choice(CHANGES[1:])
    for _ in range(chance.randrange(1, 3)):
        if ended := disturbed(world, world.start(overrides), chance):
            world.judge(overrides, ended)
    return world.judge(overrides)


def crossed(world: World, chance: random.Random) -> str:
    """Two or three runs with other settings at once; one of them may be killed and is then run again."""
    chosen = [chance.choice(CHANGES) for _ in range(chance.randrange(2, 4))]
    processes = []
    for overrides in chosen:
        processes.append(world.start(overrides))
        time.sleep(chance.uniform(0, 3))
        world.fault("run beside others", world.last_stage())
    if chance.random() < 0.4:
        world.fault("SIGKILL", world.last_stage())
        processes[0].kill()
    outcomes = []
    for overrides, process in zip(chosen, processes, strict=True):
        ended = world.ended(process)
        outcomes.append(world.judge(overrides, ended if ended.returncode >= 0 else None))
    return worst(*outcomes)


def collected(world: World, chance: random.Random) -> str:
    """`gc --delete` beside a run, after others have left versions behind."""
    world.judge(chance.choice(CHANGES))
    overrides = chance.choice(CHANGES)
    process = world.start(overrides)
    for _ in range(2):
        time.sleep(chance.uniform(0, 3))
        world.fault("gc beside a run", world.last_stage())
        world.ended(world.python("pipeline", "gc", "--delete"))
    return worst(world.judge(overrides, world.ended(process)), world.judge({}))


def jumping_clock(world: World, chance: random.Random) -> str:
    """The clock is wrong by up to three years, and jumps in the midst of a run. Then it is right again."""
    library = next(Path("/usr/lib").glob(FAKED), None)
    if library is None:
        return "not possible here"
    overrides, clock = chance.choice(CHANGES[1:]), world.place / "clock"
    clock.write_text(f"{chance.randrange(-1000, 1000):+}d")
    environment = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # with it, time.sleep() fails in version 0.9.10
        "NO_FAKE_STAT": "1",
    }
    process = world.start(overrides, environment=environment)
    time.sleep(chance.uniform(1, 8))
    world.fault("clock jump", world.last_stage())
    clock.write_text(f"{chance.randrange(-1000, 1000):+}d")
    return worst(world.judge(overrides, world.ended(process)), world.judge({}))


def interrupted_training(world: World, chance: random.Random) -> str:
    """A training that is interrupted and loses files of its checkpoints ends in the same weights."""
    reference, run_dir = world.directory / "trained", world.place / "run"
    if not reference.exists():
        world.succeeded(world.train(reference))
    outcome = SAME
    for _ in range(chance.randrange(1, 4)):
        ended = disturbed(world, world.train(run_dir), chance, "training")
        if ended and ended.returncode not in (0, RESUMABLE, USER_ERROR):
            raise FindingError(f"exit status {ended.returncode}: {ended.stderr[-500:]}")
        checkpoints = run_dir / "checkpoints"
        if any(checkpoints.glob("step-*")) and chance.random() < 0.4:
            damage, path = chance.choice(DAMAGES), some_file(checkpoints, chance)
            world.fault(f"file: {damage.__name__}", "checkpoint")
            damage(path, chance)
    ended = world.ended(world.train(run_dir))
    if outcome_of(ended, "Delete the directory to start over") == SENTENCE:
        outcome = SENTENCE
        shutil.rmtree(run_dir)
        world.succeeded(world.train(run_dir))
    if runs.outcome(run_dir) != runs.outcome(reference):
        raise FindingError(f"other weights: {ended.stderr[-500:]}")
    return outcome
