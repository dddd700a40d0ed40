"""Plots of a training run: validation loss by corpus, learning rate, throughput, gradient norm."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.system import figures
from trainer.system.run_history import RunHistory


def draw(run: RunHistory) -> bytes:
    """A PNG of four curves over million tokens."""
    train, evaluations = run.steps, run.validations
    drawing = figures.figure(9, 5.6)
    (losses, rates), (speeds, gradients) = drawing.subplots(2, 2)
    for corpus, color in figures.colors(evaluations[-1]["per_corpus"] if evaluations else ()).items():
        values = [record["per_corpus"][corpus]["loss"] for record in evaluations]
        losses.plot(_millions(evaluations), values, "o-", markersize=3, color=color, label=corpus)
    if evaluations:
        losses.legend(frameon=False, fontsize=8)
    losses.set(title="validation loss by corpus (nats per token)")
    for axes, field, title in (
        (rates, "lr", "learning rate"),
        (speeds, "tokens_per_second", "tokens per second"),
        (gradients, "grad_norm", "gradient norm before clipping"),
    ):
        values = [record[field] for record in train]
        axes.plot(_millions(train), values, color=figures.COLORS[0], linewidth=1)
        axes.set(title=title, ylim=(0, None))
    for axes in drawing.axes:
        axes.grid(alpha=0.25)
        axes.locator_params(axis="x", nbins=6)
    for axes in (speeds, gradients):
        axes.set(xlabel="million tokens")
    return figures.png(drawing)


def _millions(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [row["tokens"] / 1e6 for row in rows]
