"""Trainings that go on from another one, which is still trained, damaged or removed meanwhile."""

import os
import random
import shutil
import time
from pathlib import Path

from tests.torture.faults import DAMAGES, some_file
from tests.torture.processes import disturbed
from tests.torture.world import SAME, SENTENCE, FindingError, World, outcome_of, worst
from tests.trainer import runs
from trainer.system.errors import RESUMABLE, USER_ERROR
from trainer.system.run_history import RunHistory

COMMON = (
    "training.schedule={kind: wsd, warmup_tokens: 2048, decay_fraction: 0.25}",
    "training.checkpoint.keep_every_tokens=4096",
)
# Each shares at least the first half with the run that has no edit.
EDITS = {
    "longer horizon": "training.max_tokens=98304",
    "earlier decay": "training.schedule.decay_fraction=0.5",
    "other decay": "training.schedule.decay=sqrt",
    "other last stage": "training.stages=[{name: a, until_tokens: 49152}, {name: b, lr_multiplier: 0.5}]",
}
TRUNK = "a" * 16
TWO_DAYS = 2 * 24 * 3600


def branched(world: World, chance: random.Random) -> str:
    """One or two edits of a training, or two processes of one, go on from it, and end in the weights of a
    training from the first step, whatever becomes of the trunk and of them.
    """
    folder, chosen = world.store / "runs", chance.choices(sorted(EDITS), k=chance.randrange(1, 3))
    trunk = world.train(folder / TRUNK, *COMMON) if chance.random() < 0.4 else None
    if trunk:
        world.fault("trunk still trained", "training")
        while trunk.poll() is None and not RunHistory(folder / TRUNK).checkpoints():
            time.sleep(0.05)
    else:
        shutil.copytree(_alone(world, ""), folder / TRUNK)
    whole, started = True, []
    for edit in chosen:
        started.append(world.train(_place(folder, edit), *COMMON, EDITS[edit]))
        world.fault(f"branch: {edit}", "training")
    if chance.random() < 0.7:
        time.sleep(chance.uniform(0, 10))
        whole = False
        # Nobody removes the directory of a training by hand.
        kinds = ["damaged", "collected", *([] if trunk else ["removed"])]
        _disturb_trunk(world, folder / TRUNK, chance, chance.choice(kinds))
    for process in started:
        ended = (
            disturbed(world, process, chance, "training") if chance.random() < 0.5 else world.ended(process)
        )
        if ended and ended.returncode not in (0, RESUMABLE, USER_ERROR):
            raise FindingError(f"exit status {ended.returncode}: {ended.stderr[-500:]}")
    if trunk:
        world.ended(trunk)
    return worst(*(_judge(world, folder, edit, whole) for edit in sorted(set(chosen))))


def _disturb_trunk(world: World, trunk: Path, chance: random.Random, kind: str) -> None:
    world.fault(f"trunk: {kind}", "checkpoint")
    if kind == "damaged":
        for _ in range(chance.randrange(1, 4)):
            chance.choice(DAMAGES)(some_file(trunk / "checkpoints", chance), chance)
    elif kind == "removed":
        shutil.rmtree(trunk, ignore_errors=True)
    else:
        for name in ("config.yaml", "metrics.jsonl"):  # nobody waits for it any more
            os.utime(trunk / name, (time.time() - TWO_DAYS,) * 2)
        world.ended(world.python("pipeline", "gc", "--delete", "--keep", "1"))


def _judge(world: World, folder: Path, edit: str, whole: bool) -> str:
    """The outcome of a last start of a branch. Raises FindingError."""
    branch, outcome = _place(folder, edit), SAME
    ended = world.ended(world.train(branch, *COMMON, EDITS[edit]))
    if outcome_of(ended, "Delete the directory to start over") == SENTENCE:
        outcome = SENTENCE
        shutil.rmtree(branch)
        ended = world.succeeded(world.train(branch, *COMMON, EDITS[edit]))
    if runs.outcome(branch)[:2] != runs.outcome(_alone(world, edit))[:2]:
        raise FindingError(f"{edit}: other weights: {ended.stderr[-500:]}")
    if whole and not RunHistory(branch).trunks:
        raise FindingError(f"{edit}: trained what another run had trained: {ended.stderr[-500:]}")
    return outcome


def _alone(world: World, edit: str) -> Path:
    """A training with an edit, from the first step."""
    reference = world.directory / "alone" / (edit or "trunk")
    if not reference.exists():
        edits = [EDITS[edit]] if edit else []
        world.succeeded(world.train(reference, *COMMON, "training.shared_states=none", *edits))
    return reference


def _place(folder: Path, edit: str) -> Path:
    return folder / f"b{sorted(EDITS).index(edit):015}"
