"""The picture of a run's losses."""

import numpy as np

from trainer.system import figures
from trainer.system.durable import write_atomically
from trainer.system.run_history import RunHistory, bits_shown


def draw_losses(run: RunHistory) -> None:
    """Plots losses: a light line for each step, a dark one for a mean over a fortieth of the steps."""
    steps, validations = run.steps, run.validations
    if not steps:
        return
    drawing = figures.figure(8, 4.5)
    drawing.set_layout_engine("none")  # finding the margins takes as long as drawing
    axes = drawing.add_axes((0.11, 0.12, 0.86, 0.8))
    tokens, smooth = np.array(run.tokens) / 1e6, run.losses
    losses = np.array([step["loss"] for step in steps], dtype=np.float64)
    axes.plot(tokens, losses, color="#9ecae1", linewidth=0.8)
    axes.plot(tokens, smooth, color=figures.COLORS[0], linewidth=1.6, label=f"training {smooth[-1]:.3f}")
    if validations:
        last = validations[-1]
        label = f"validation {last['loss']:.3f} ({bits_shown(last['bits_per_byte'])})"
        tokens = np.array([validation["tokens"] for validation in validations]) / 1e6
        losses = np.array([validation["loss"] for validation in validations])
        axes.plot(tokens, losses, "o-", color=figures.COLORS[1], markersize=4, linewidth=1.4, label=label)
    title = f"Loss after {steps[-1]['tokens']:,} tokens"
    unit = "pair" if "margin" in steps[-1] else "token"
    axes.set(xlabel="million tokens", ylabel=f"loss (nats per {unit})", title=title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    write_atomically(run.directory.loss_curve, figures.png(drawing))
