"""The report on a loss or a gradient that is NaN or infinite: the batch, what is wrong, and what to try."""

import json
import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint import publish
from trainer.model.precision import AUTOCAST, Precision
from trainer.run.batch import Batch
from trainer.run.objectives import loss_sum
from trainer.run.session import Session
from trainer.run.step import NotFiniteError
from trainer.system.durable import write_atomically
from trainer.system.tensor_files import save_tensors

LISTED = 8


def explain(session: Session, error: NotFiniteError, run_dir: Path) -> str:
    """The user's message. Writes `not-finite/step-<step>.json` and the batch. A collective."""
    session.model.zero_grad(set_to_none=True)
    # The same windows in every process, since a forward pass may need all of them.
    windows = torch.from_numpy(session.plan.data.batch(session.step, 0, 1))
    held = dict(session.model.named_parameters())
    weights = [
        name
        for name in session.model.shapes
        if session.world.any(name in held and not bool(held[name].isfinite().all()))
    ]
    losses = _losses(session, windows, session.plan.precision)
    # A split model gathers its weights in the run's precision, so that fp32 cannot be tried.
    rounds = session.training.parallel.splits_model and session.plan.precision in AUTOCAST
    in_fp32 = None if rounds else _losses(session, windows, "fp32")
    path = run_dir / "not-finite" / f"step-{error.step:08d}.json"
    if session.world.is_main:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors({"windows": windows.to(torch.int32)}, path.with_suffix(".safetensors"))
        report = _report(session, error, run_dir) | {
            "weights_not_finite": weights,
            "window_losses": [str(loss) for loss in losses],
            "window_losses_in_fp32": None if in_fp32 is None else [str(loss) for loss in in_fp32],
        }
        write_atomically(path, json.dumps(report, indent=1) + "\n")
    return f"{error}; {_advice(weights, losses, in_fp32)}. Report and batch: {path}"


def _advice(weights: list[str], losses: list[float], in_fp32: list[float] | None) -> str:
    lower = "lower the learning rate, lengthen the warmup, "
    if weights:
        more = f" and {len(weights) - LISTED} more" if len(weights) > LISTED else ""
        return (
            f"these weights were not finite before this step: {', '.join(weights[:LISTED])}{more}. They are "
            f"in no checkpoint: {lower}and resume with --allow-changes"
        )
    if not all(map(math.isfinite, in_fp32 or ())):
        return f"the loss is not finite in fp32 either: {lower}or set training.z_loss"
    if all(map(math.isfinite, losses)):
        return f"the loss is finite, but its gradient is not: {lower}or train in fp32"
    if in_fp32 is None:
        return f"the loss is not finite: {lower}set training.z_loss, or train in fp32"
    return "in fp32 the loss is finite: train in bf16 or fp32"


def _report(session: Session, error: NotFiniteError, run_dir: Path) -> dict[str, Any]:
    checkpoints = publish.existing(run_dir / "checkpoints")
    return {
        "step": error.step,
        "tokens": session.tokens,
        "loss": str(error.loss),
        "grad_norm": str(error.grad_norm),
        "windows": "in the .safetensors file: one row of seq_len + 1 token ids for each window; ~id stands "
        "for a token that is read but not predicted",
        "precision": session.plan.precision,
        "loss_scale": session.context.loss_scale.value,
        # All randomness is a function of the seed and the sample number.
        "seed": session.training.seed,
        "newest_checkpoint": str(checkpoints[-1]) if checkpoints else None,
        "torch": version("torch"),
        "config": session.config.model_dump(mode="json"),
    }


@torch.no_grad()
def _losses(session: Session, windows: torch.Tensor, precision: Precision) -> list[float]:
    rows = (row[None].to(session.world.device) for row in windows)
    context = session.context
    batches = (Batch.of(row, context.bot_id, answers=context.answers) for row in rows)
    losses = (loss_sum(session.model, batch, precision) for batch in batches)
    return [session.world.from_last_stage(loss).item() for loss in losses]
