"""The table and the curves of runs side by side."""

import math
from collections.abc import Iterator, Sequence
from statistics import mean, stdev

from pipeline.reports import images, tables
from pipeline.reports.comparison import Outcome
from pipeline.steps.model import benchmark
from trainer.system import figures

RECIPE, HELD_OUT, SETTINGS = "recipe", "held-out text", "settings that differ"
RANK, SEEDS, KEPT, HOURS = "rank", "seeds", "checkpoints", "hours"
NARROW = ("run", RANK, "bits per byte", "tokens", "seed", "done", HOURS)
LONGEST = 24  # characters of a name beside those columns
INLINE = 1000  # characters of markdown that the UI shows at once
WIDTH, HEIGHT = 10, 4.6  # inches: as wide as a dialog of the UI
EXPLAINED = (
    "Loss (nats per token) and bits per byte are measured on all held-out text; until a run is evaluated, "
    "they are those of its last validation. Hours are those of the trainer in all attempts. Benchmarks are "
    "in percent with 95% intervals (Wilson), evaluation texts in bits per byte with intervals over their "
    "documents. Of several seeds, the table has the mean and its standard deviation. `rank` is 1 and one "
    "more for each variant that is better by a verdict; variants that are not distinguishable share a rank."
)
OTHER_TEXT = (
    "Losses and bits per byte can be compared where the letter in `held-out text` is the same, those of "
    "evaluation texts everywhere."
)


def rows(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """A row for each run, all with the same columns. Columns that say nothing are left out: held-out text
    that is the same for all, and what is not known of any run.
    """
    answered = list(dict.fromkeys(name for one in outcomes for run in _runs(one) for name in run.benchmarks))
    found = [_row(one, answered) for one in outcomes]
    silent = {HELD_OUT} if not texts_differ(outcomes) else set()
    silent |= {
        name for name in ("USD", RECIPE, KEPT, RANK, SEEDS, "seed") if all(row[name] == "-" for row in found)
    }
    return [{name: text for name, text in row.items() if name not in silent} for row in found]


def texts_differ(outcomes: Sequence[Outcome]) -> bool:
    return len({one.held_out for one in outcomes if one.held_out}) > 1


def _row(outcome: Outcome, answered: Sequence[str]) -> dict[str, str]:
    runs = _runs(outcome)
    return {
        "run": outcome.name,
        RANK: _figure(outcome.rank, "d"),
        SEEDS: f"{sum(run.done == 1 for run in runs)} of {len(outcome.seeds)}" if outcome.seeds else "-",
        RECIPE: outcome.recipe or "-",
        SETTINGS: outcome.settings or "-",
        "done": f"{outcome.done:.0%}",
        "tokens": f"{outcome.tokens:,}",
        "seed": ", ".join(str(run.seed) for run in outcome.seeds or [outcome] if run.seed is not None) or "-",
        "loss": _over_seeds([run.loss for run in runs]),
        "bits per byte": _over_seeds([run.bits_per_byte for run in runs]),
        HELD_OUT: outcome.held_out or "-",
        **{name: _score(outcome, name) for name in answered},
        HOURS: _figure(outcome.seconds and outcome.seconds / 3600, ",.2f"),
        "USD": _figure(outcome.usd, ".2f"),
        KEPT: "-" if outcome.checkpoints is None else str(len(outcome.checkpoints) or "none"),
    }


def _runs(outcome: Outcome) -> Sequence[Outcome]:
    """The runs whose mean a figure is: the seeds that are done, else the first seed, else the run itself."""
    return [run for run in outcome.seeds if run.done == 1] or outcome.seeds[:1] or [outcome]


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None or not math.isfinite(value) else format(value, form)


def _over_seeds(values: Sequence[float | None]) -> str:
    """The mean, with the standard deviation of several."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < 2:
        return _figure(known[0] if known else None, ".4f")
    return f"{mean(known):.4f} ± {stdev(known):.4f}"


def _score(outcome: Outcome, name: str) -> str:
    """The accuracy on a benchmark, in percent, or, where no answer is wrong, the bits per byte of a text."""
    found = [run.benchmarks[name] for run in _runs(outcome) if name in run.benchmarks]
    scores = found[0] if found else None
    if any(not run["metric"] and run["bits_per_byte"] is None for run in found):
        return benchmark.LOSES_TEXT
    if outcome.seeds and scores:
        metric, unit = scores["metric"] or "bits_per_byte", 100 if scores["metric"] else 1
        # imported scores of one seed may lack what those of another have
        return _over_seeds([unit * run[metric]["value"] for run in found if run[metric]])
    if scores and not scores["metric"]:
        return "{value:.4f} ({low:.4f}-{high:.4f})".format(**scores["bits_per_byte"])
    return benchmark.shown(scores and scores[scores["metric"]])


def lines(outcomes: Sequence[Outcome], columns: int) -> Iterator[str]:
    """The table for a terminal of so many `columns`. What does not fit has a table of its own:
    benchmarks and settings."""
    table = rows(outcomes)
    whole = list(tables.lines(table))
    if max(map(len, whole)) <= columns:
        yield from whole
    else:
        own = {SETTINGS, *(name for one in outcomes for name in one.benchmarks)}
        yield from tables.lines(table, [name for name in table[0] if name not in own])
        for name in (name for name in table[0] if name in own):
            yield ""
            yield from tables.lines(table, ["run", name])
    if texts_differ(outcomes):
        yield OTHER_TEXT


def markdown(outcomes: Sequence[Outcome], page: str, shown: Sequence[str] = ()) -> str:
    """The columns `shown`, else all; each run links to its newest checkpoint on disk by `page`."""
    table = rows(outcomes)
    for one, row in zip(outcomes, table, strict=True):
        if shown and len(row["run"]) > LONGEST:
            row["run"] = f"{row['run'][: LONGEST - 10]}… {one.run}"
        if one.checkpoints:
            row["run"] = f"[{row['run']}]({page}{one.checkpoints[-1]})"
    return tables.markdown(table, shown)


def inline(outcomes: Sequence[Outcome], page: str) -> Iterator[tuple[str, str]]:
    """The columns that the page of an asset has room for, in tables that are short enough to be shown there
    without a click, each with its first and last place.
    """
    first, last = 0, 1
    while first < len(outcomes):
        while last < len(outcomes) and len(markdown(outcomes[first : last + 1], page, NARROW)) < INLINE:
            last += 1
        yield f"{first + 1}-{last}", markdown(outcomes[first:last], page, NARROW)
        first, last = last, last + 1


def overlaid(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str]]:
    """The losses by tokens of the runs that have begun, a few in each picture, which are short enough to be
    shown without a click. All pictures have the same axes.
    """
    curves = {one.run: (one.curve.tokens, one.curve.losses) for one in outcomes if one.curve}
    for number, picture in enumerate(images.overlaid(curves)):
        yield "loss by tokens" + (f" ({number + 1})" if number else ""), picture


def draw(outcomes: Sequence[Outcome]) -> bytes:
    """A PNG of all losses over tokens and over time: running means in training, dots for validations."""
    drawing = figures.figure(WIDTH, HEIGHT)
    over_tokens, over_time = drawing.subplots(1, 2, sharey=True)
    begun = [  # further seeds have no place in the legend
        (number, "_" * seed + one.name, run.curve)
        for number, one in enumerate(outcomes)
        for seed, run in enumerate(one.seeds or [one])
        if run.curve
    ]
    for number, variant, curve in begun:
        color = figures.COLORS[number % len(figures.COLORS)]
        style = ("-", "--", ":", "-.")[number // len(figures.COLORS) % 4]
        time_at = dict(zip(curve.tokens, curve.seconds, strict=True))
        scales = (
            (over_tokens, [tokens / 1e6 for tokens in curve.tokens], [one / 1e6 for one in curve.validated]),
            (over_time, curve.seconds, [time_at.get(one, math.nan) for one in curve.validated]),
        )
        for axes, steps, validated in scales:
            axes.plot(steps, curve.losses, style, color=color, linewidth=1.4, label=variant)
            axes.plot(validated, curve.validation_losses, "o", color=color, markersize=4)
    for axes in drawing.axes:
        axes.grid(alpha=0.25)
    over_tokens.set(xlabel="million tokens", ylabel="loss (nats per token)")
    over_time.set(xlabel="seconds in steps")
    drawing.suptitle("line: running mean in training, dots: validation", fontsize=10)
    if begun:
        over_time.legend(frameon=False, fontsize=8)
    return figures.png(drawing)
