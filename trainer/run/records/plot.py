"""loss.png: the training and validation loss over tokens."""

from pathlib import Path
from typing import Any

import numpy as np

from trainer.system import figures
from trainer.system.durable import write_atomically
from trainer.system.history import running_mean


def loss_curve(records: list[dict[str, Any]], path: Path) -> None:
    """Plots the records of metrics.jsonl. The light line is each step, the dark one a running mean over about
    a fortieth of the steps.
    """
    train = [record for record in records if record["kind"] == "train"]
    evaluations = [
        record for record in records if record["kind"] == "evaluation" and record["loss"] is not None
    ]
    if not train:
        return
    drawing = figures.figure(8, 4.5)
    axes = drawing.add_subplot()
    tokens = np.array([record["tokens"] for record in train]) / 1e6
    losses = np.array([record["loss"] for record in train], dtype=np.float64)
    axes.plot(tokens, losses, color="#9ecae1", linewidth=0.8)
    smooth = running_mean(losses.tolist())
    axes.plot(tokens, smooth, color=figures.COLOURS[0], linewidth=1.6, label=f"training {smooth[-1]:.3f}")
    if evaluations:
        label = (
            f"validation {evaluations[-1]['loss']:.3f} ({evaluations[-1]['bits_per_byte']:.3f} bits per byte)"
        )
        validated = [record["tokens"] / 1e6 for record in evaluations]
        axes.plot(
            validated,
            [record["loss"] for record in evaluations],
            "o-",
            color=figures.COLOURS[1],
            markersize=4,
            linewidth=1.4,
            label=label,
        )
    axes.set(
        xlabel="million tokens",
        ylabel="loss (nats per token)",
        title=f"Loss after {train[-1]['tokens']:,} tokens",
    )
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    write_atomically(path, figures.png(drawing))
