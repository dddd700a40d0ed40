"""The plan as a picture: the loss over tokens, and over sizes at the same compute."""

from pathlib import Path

import numpy as np

from trainer.tools.planner.laws import LAWS
from trainer.tools.planner.plan import Run
from trainer.tools.planner.text import count


def draw(run: Run, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    over_tokens, over_sizes = figure.subplots(1, 2)
    compute = 6 * run.parameters * run.tokens
    for law, colour in zip(LAWS.values(), ("#08519c", "#d94801", "#7f7f7f"), strict=True):
        optimum = law.best_tokens(run.parameters)
        tokens = np.geomspace(min(optimum, run.tokens) / 5, max(optimum, run.tokens) * 30, 200)
        over_tokens.plot(
            tokens, [law.loss(run.parameters, seen) for seen in tokens], color=colour, label=law.source
        )
        over_tokens.plot(optimum, law.loss(run.parameters, optimum), "o", color=colour)
        best, seen = law.best_for_compute(compute)
        sizes = np.geomspace(min(best, run.parameters) / 8, max(best, run.parameters) * 8, 200)
        over_sizes.plot(
            sizes, [law.loss(size, compute / 6 / size) for size in sizes], color=colour, label=law.source
        )
        over_sizes.plot(best, law.loss(best, seen), "o", color=colour)
    over_tokens.axvline(
        run.tokens, color="black", linewidth=0.8, linestyle=":", label=f"the plan: {count(run.tokens)} tokens"
    )
    over_sizes.axvline(
        run.parameters,
        color="black",
        linewidth=0.8,
        linestyle=":",
        label=f"the plan: {count(run.parameters)} parameters",
    )
    over_tokens.set(
        xscale="log",
        xlabel="tokens",
        ylabel="expected loss (nats per token)",
        title=f"{count(run.parameters)} parameters; dots: compute-optimal",
    )
    over_sizes.set(
        xscale="log", xlabel="parameters", title=f"6 N D = {compute:.1e} FLOPs spent on other sizes"
    )
    for axes in (over_tokens, over_sizes):
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path)
