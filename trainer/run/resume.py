"""Finding the newest valid checkpoint of a run, and restoring a session from it."""

import logging
from pathlib import Path
from typing import Any

from trainer.checkpoint import publish, state
from trainer.checkpoint.publish import CheckpointError
from trainer.optim import weight_averaging
from trainer.run.resolve import Plan
from trainer.run.session import Session
from trainer.system.errors import TrainerError
from trainer.system.machine import differences
from trainer.system.run_history import differing, flat

# Settings that can never change in a run: the saved state would not fit.
FIXED = (
    "training.model",
    "training.seq_len",
    "training.global_batch_tokens",
    "training.optimizer.kind",
    "training.optimizer.python",
    "training.lora.rank",
    "training.lora.control_tokens",
    "data.tokenizer_sha256",
    "data.vocab_size",
)

log = logging.getLogger("trainer")


def find(plan: Plan, checkpoints: Path, allow_changes: bool = False) -> Path | None:
    """The newest valid checkpoint of the run; None if there is none yet. For the main process alone.

    Raises TrainerError if no checkpoint is valid or the newest belongs to a run with other settings, unless
    `allow_changes` accepts them.
    """
    found, skipped = publish.newest_valid(checkpoints, lambda checkpoint: _check_state(plan, checkpoint))
    if skipped and found is None:
        raise TrainerError(
            f"no checkpoint in {checkpoints} can be resumed: {'; '.join(skipped)}. Delete the directory to "
            "start over, or use another run_dir"
        )
    for reason in skipped:
        log.warning("skipped an invalid checkpoint: %s", reason)
    if found is not None:
        _check(plan, found, allow_changes)
    return found


def _check_state(plan: Plan, checkpoint: Path) -> None:
    """Raises CheckpointError if training is not complete at a checkpoint that has no optimizer's state."""
    steps = plan.training.curriculum.steps
    if publish.step_of(checkpoint) < steps and not publish.optimizer_files(checkpoint):
        raise CheckpointError(
            f"{checkpoint} holds the model only (training.checkpoint.optimizer), so that training cannot go "
            f"on from it to step {steps}"
        )


def _check(plan: Plan, checkpoint: Path, allow_changes: bool) -> None:
    """Raises TrainerError if the run cannot be resumed from the checkpoint."""
    curriculum, saved = plan.training.curriculum, state.read_state(checkpoint)
    changed = _changes(saved, plan)
    fixed = [line for line in changed if line.startswith(FIXED)]
    position = (curriculum.tokens(saved["step"]), curriculum.samples(saved["step"]))
    if not fixed and (saved["tokens"], saved["samples"]) != position:
        fixed = [f"training.stages up to step {saved['step']}"]
    if fixed and allow_changes:
        raise TrainerError(
            f"{checkpoint}: cannot resume, even with --allow-changes: {'; '.join(fixed)} changed since this "
            "checkpoint. Use another run_dir"
        )
    if changed and not allow_changes:
        raise TrainerError(
            f"{checkpoint}: cannot resume: the settings changed since this checkpoint "
            f"({'; '.join(changed)}). Restore them, use another run_dir, or accept the changes with "
            "--allow-changes"
        )
    if saved["step"] > curriculum.steps:
        raise TrainerError(
            f"{checkpoint}: cannot resume: it is past training.max_tokens {plan.training.max_tokens}. Use "
            "another run_dir"
        )


def _changes(saved: dict[str, Any], plan: Plan) -> list[str]:
    """The decisive settings that differ from those of a checkpoint."""
    then, now = flat(saved["meaning"]), flat(plan.identity)
    return [
        f"{key}: {then.get(key, 'not set')} -> {now.get(key, 'not set')}" for key in differing([then, now])
    ]


def restore(session: Session, checkpoint: Path) -> None:
    """Loads everything that the checkpoint holds, and records which settings change from here on."""
    saved = state.read_state(checkpoint)
    for optimizer in session.optimizers:
        optimizer.state.clear()
    state.restore(checkpoint, session.model, session.optimizers)
    weight_averaging.put_back(session.optimizers)
    if session.training.moving_average is None:
        weight_averaging.drop(session.optimizers)
    changed = _changes(saved, session.plan)
    session.go_to(saved, changed)
    if otherwise := differences(saved.get("machine", session.machine), session.machine):
        log.warning(
            f"this machine rounds differently from that of step {session.step} ({'; '.join(otherwise)}): the "
            "weights will differ in their last bits from those of a run that was not moved"
        )
    if changed:
        log.warning("the settings changed after step %d: %s", session.step, "; ".join(changed))
