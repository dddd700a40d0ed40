"""The report on a loss or a gradient that is NaN or infinite: the batch, what is wrong, and what to try."""

import json
import math
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from trainer.checkpoint import publish as store
from trainer.model.precision import AUTOCAST, Precision
from trainer.run.batch import Batch
from trainer.run.session import Session
from trainer.run.step import NotFiniteError, loss_sum
from trainer.system.durable import write_atomically

LISTED = 8


@dataclass(frozen=True)
class Findings:
    """Parameters that are not finite, and the loss of each window of the batch in nats: in the run's
    precision and in fp32.

    `losses_in_fp32` is None if the model is split and gathers its weights in fewer bits, so that fp32 cannot
    be tried.
    """

    weights: list[str]
    losses: list[float]
    losses_in_fp32: list[float] | None

    @classmethod
    def of(cls, session: Session, windows: torch.Tensor) -> "Findings":
        """Examines windows [rows, seq_len + 1], the same in every process: a forward pass may need all."""
        held = dict(session.model.named_parameters())
        weights = [
            name
            for name in session.model.shapes
            if session.world.any(name in held and not bool(held[name].isfinite().all()))
        ]
        rounds = session.training.parallel.splits_model and session.precision in AUTOCAST
        return cls(
            weights,
            _losses(session, windows, session.precision),
            None if rounds else _losses(session, windows, "fp32"),
        )

    def advice(self) -> str:
        if self.weights:
            named = ", ".join(self.weights[:LISTED]) + (
                f" and {len(self.weights) - LISTED} more" if len(self.weights) > LISTED else ""
            )
            return (
                f"these weights were not finite before this step: {named}. Delete the newest checkpoint if "
                "they are not finite in it either, and lower the learning rate"
            )
        if self.losses_in_fp32 is not None and not _all_finite(self.losses_in_fp32):
            return (
                "the loss is not finite in fp32 either: lower the learning rate, lengthen the warmup, or "
                "set training.z_loss"
            )
        if not _all_finite(self.losses):
            if self.losses_in_fp32 is None:
                return (
                    "the loss is not finite: lower the learning rate, lengthen the warmup, set "
                    "training.z_loss, or train in fp32"
                )
            return "in fp32 the loss is finite: train in bf16 or fp32"
        return (
            "the loss is finite, but its gradient is not: lower the learning rate, lengthen the warmup, or "
            "train in fp32"
        )


def _all_finite(losses: list[float]) -> bool:
    return all(map(math.isfinite, losses))


def explain(session: Session, error: NotFiniteError, run_dir: Path) -> str:
    """The message for the user. Writes `not-finite/step-<step>.json` and the batch to the run's directory. A
    collective.
    """
    session.model.zero_grad(set_to_none=True)
    windows = torch.from_numpy(session.data.batch(session.step, 0, 1))
    found = Findings.of(session, windows)
    path = run_dir / "not-finite" / f"step-{error.step:08d}.json"
    if session.world.is_main:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({"windows": windows.to(torch.int32)}, path.with_suffix(".safetensors"))
        write_atomically(path, json.dumps(_report(session, error, found, run_dir), indent=1) + "\n")
    return f"{error}; {found.advice()}. Report and batch: {path}"


def _report(session: Session, error: NotFiniteError, found: Findings, run_dir: Path) -> dict[str, Any]:
    checkpoints = store.existing(run_dir / "checkpoints")
    return {
        "step": error.step,
        "tokens": session.tokens,
        "loss": str(error.loss),
        "grad_norm": str(error.grad_norm),
        "windows": "in the .safetensors file: one row of seq_len + 1 token ids for each window; ~id stands "
        "for a token that is read but not predicted",
        "weights_not_finite": found.weights,
        "window_losses": [str(loss) for loss in found.losses],
        "window_losses_in_fp32": found.losses_in_fp32 and [str(loss) for loss in found.losses_in_fp32],
        "precision": session.precision,
        "loss_scale": session.loss_scale.value,
        # All randomness is a function of the seed and the sample number.
        "seed": session.training.seed,
        "newest_checkpoint": str(checkpoints[-1]) if checkpoints else None,
        "torch": version("torch"),
        "config": session.config.model_dump(mode="json"),
    }


@torch.no_grad()
def _losses(session: Session, windows: torch.Tensor, precision: Precision) -> list[float]:
    rows = (row[None].to(session.world.device) for row in windows)
    losses = (loss_sum(session.model, Batch.of(row, session.bot_id), precision) for row in rows)
    return [session.world.from_last_stage(loss).item() for loss in losses]
