"""After a spike: back to a checkpoint before it, and on from there past the samples that led to it."""

from collections.abc import Sequence
from pathlib import Path

from trainer.checkpoint import state, store
from trainer.config import Curriculum
from trainer.data.order import Jump


def checkpoint_before(checkpoints: Path, step: int, steps: int) -> Path | None:
    """The newest whole checkpoint up to `step` of a run of `steps` steps, else the oldest after it; None when
    there is none.
    """
    found = store.existing(checkpoints)
    earlier = [checkpoint for checkpoint in found if store.step_of(checkpoint) <= step]
    return store.first_valid(
        (*reversed(earlier), *found[len(earlier) :]), lambda checkpoint: state.verify(checkpoint, steps)
    )[0]


def jumps_after(jumps: Sequence[Jump], curriculum: Curriculum, back_to: int, reached: int) -> list[Jump]:
    """What is left out of a run that goes back from `reached` steps to `back_to`: what was there already, and
    all samples in between.

    Each stage leaves out those of its own.
    """
    first, last = curriculum.samples(back_to), curriculum.samples(reached)
    after = [jump for jump in jumps if jump.at < first]
    for stage in curriculum.stages:
        begin, end = (
            max(first, stage.first_sample),
            min(last, stage.first_sample + stage.steps * stage.global_batch_size),
        )
        if begin < end:
            after.append(
                Jump(begin, end - begin + sum(jump.samples for jump in jumps if begin <= jump.at < end))
            )
    return after


def discard_after(checkpoint: Path) -> None:
    """Removes the checkpoints after this one, the newest first: a run that is killed meanwhile goes on from
    one before the same spike.
    """
    for later in reversed(store.existing(checkpoint.parent)):
        if store.step_of(later) > store.step_of(checkpoint):
            store.remove(later)
