"""Verdicts as tables and sentences."""

from collections.abc import Iterator, Mapping, Sequence

from pipeline.recipe.recipe import Recipe
from pipeline.reports.variant_arms import Arm
from pipeline.reports.verdict import Verdict
from pipeline.steps.model.significance import ALIKE, FEWEST, LOOKS, UNDECIDED, WORSE, Difference, seeds_needed
from trainer.system.wording import counted

EXPLAINED = (
    "Differences are in bits per byte, below 0 where the second one is better. Intervals are over documents, "
    "or questions, and seeds together, 95% over all comparisons and looks. `would be found`: the smallest "
    "difference that these runs would have shown with probability .8. Of a benchmark, the bits per byte of "
    "the right answer count; its accuracy, in percent, is shown with its interval and does not count. For "
    "tunings, held-out answers decide (docs/decide.md)."
)


def rows(verdict: Verdict) -> list[dict[str, str]]:
    """A row for each text and benchmark, and one for all."""
    named = dict(verdict.rows)
    if verdict.total and len(named) > 1:
        named["all"] = verdict.total
    return [
        {"text": name, **_difference_columns(one), "accuracy": _accuracy(verdict.wrong.get(name))}
        for name, one in named.items()
    ]


def _difference_columns(difference: Difference | None) -> dict[str, str]:
    if difference is None:
        return dict.fromkeys(("difference", "interval", "would be found"), "-")
    return {
        "difference": f"{difference.value:+.4f}",
        "interval": f"{difference.low:+.4f} to {difference.high:+.4f}",
        "would be found": f"{difference.detectable:.4f}",
    }


def _accuracy(wrong: Difference | None) -> str:
    return "-" if wrong is None else f"{-100 * wrong.value:+.1f} ± {100 * (wrong.high - wrong.value):.1f}"


def _obstacle(verdict: Verdict) -> tuple[str, str]:
    """Why nothing can be told, and what to do about it; both empty if it can."""
    if verdict.gone:
        named = "; ".join(f"{name} cannot be looked for ({why})" for name, why in verdict.gone.items())
        remedy = "Put the same files back: their content is part of what names a run."
        return f"what was trained of {named}", remedy
    if verdict.lost:
        named = " and ".join(f"{name} does not give back {lost}" for name, lost in verdict.lost.items())
        remedy = f"Take a tokenizer that gives text back for {' and '.join(verdict.lost)}."
        return f"the tokenizer of {named}, so bits per byte are those of another text", remedy
    if verdict.few:
        texts = ", ".join(f"{name} has {number}" for name, number in verdict.few.items())
        return (
            f"each text needs at least {FEWEST} documents, or sources where it has several documents of one, "
            f"and {texts}",
            "Name text with more documents or sources in `evaluation.texts`; of a section, read more "
            "conversations, or hold more of them out with `shards.validation_fraction`.",
        )
    if verdict.changed:
        sources = ", ".join(verdict.changed)
        return (
            f"the source of {sources} changed between their runs, so they were trained on different text",
            "--run trains those again that read what it does not hold any more.",
        )
    return "", ""


def sentence(verdict: Verdict) -> str:
    """The word, and what it rests on."""
    if why := _obstacle(verdict)[0]:
        return f"cannot tell {verdict.theirs} from {verdict.ours}: {why}."
    if not verdict.total or verdict.word == UNDECIDED:
        have = "has" if verdict.seeds == 1 else "have"
        return (
            f"{UNDECIDED} on {verdict.theirs} against {verdict.ours}: it needs {LOOKS[0]} seeds of each, "
            f"{verdict.seeds} {have} ended."
        )
    if verdict.word == ALIKE:
        said = f"{verdict.theirs} and {verdict.ours} are {ALIKE}"
    else:
        said = f"{verdict.theirs} is {verdict.word} than {verdict.ours}"
    of_several = f", corrected for {verdict.comparisons} comparisons" if verdict.comparisons > 1 else ""
    total = verdict.total
    return (
        f"{said}: {total.value:+.4f} bits per byte, {total.low:+.4f} to {total.high:+.4f} "
        f"({verdict.seeds} seeds of each{of_several})."
    )


def quoted(recipe: Recipe) -> str:
    """The evaluation texts that training text may quote; empty if it may quote none."""
    removing = recipe.decontamination if recipe.removes_contaminated else None
    searched = [one.source for one in removing.sets] if removing else []
    names = ", ".join(text.name for text in recipe.evaluation.texts if text.source not in searched)
    return names and f"Training text may quote {names}: `decontamination: benchmarks` removes what does."


def control(arms: Mapping[str, Arm], verdicts: Sequence[Verdict]) -> str:
    """Whether a negative control lost, without which no verdict is to be trusted."""
    controls = [verdict for verdict in verdicts if arms[verdict.theirs].control]
    if not controls:
        return "No variant is a negative control: `training: {control: duplicates}` makes one that must lose."
    return " ".join(map(_of_control, controls))


def _of_control(verdict: Verdict) -> str:
    if not verdict.total or verdict.seeds < LOOKS[0]:
        return f"The negative control {verdict.theirs} has not been trained with {LOOKS[0]} seeds yet."
    if verdict.word != WORSE:
        return (
            f"The negative control {verdict.theirs} did not lose ({verdict.total.value:+.4f} bits per byte, "
            f"{verdict.total.low:+.4f} to {verdict.total.high:+.4f}): these runs do not show a change that "
            "is known to hurt, so trust no verdict on a difference that is not much larger. Train for "
            "longer, with more seeds, or on more text."
        )
    return (
        f"The negative control {verdict.theirs} lost, as it must, by {verdict.total.value:.4f} bits per byte."
    )


def advice(verdict: Verdict, arms: Mapping[str, Arm], wanted: float) -> str:
    """What it would take to see a difference of `wanted` bits per byte, and what that costs here."""
    pair = [arms[verdict.ours], arms[verdict.theirs]]
    seconds = [arm.seconds for arm in pair if arm.seconds]
    if remedy := _obstacle(verdict)[1]:
        return remedy
    if not verdict.total:
        return f"Three seeds of each: {_needed_settings(pair, 3)}--run{_cost(3, pair, seconds)}."
    if verdict.total.detectable <= wanted and verdict.seeds >= LOOKS[0]:
        return ""
    for scale in (1, 4, 16, 64):
        needed = seeds_needed(verdict.total, verdict.seeds, verdict.comparisons, wanted, scale)
        if needed:
            todo = f"{_needed_settings(pair, needed, scale)}--run{_cost(needed, pair, seconds)}"
            return f"To see a difference as small as {wanted:g}: {todo}."
    return f"Not even {LOOKS[-1]} seeds would show a difference as small as {wanted:g}: train for longer."


def _needed_settings(arms: Sequence[Arm], seeds: int, scale: int = 1) -> str:
    """What the recipe needs before the runs: nothing where it has the seeds and the documents."""
    has_seeds = all(len(arm.ended) + len(arm.missing) >= seeds for arm in arms)
    asked = [] if has_seeds else [f"`seeds: {seeds}`"]
    asked += [f"{scale} times the documents"] if scale > 1 else []
    return f"{' and '.join(asked)}, then " if asked else ""


def _cost(seeds: int, arms: Sequence[Arm], seconds: Sequence[float]) -> str:
    runs = sum(max(0, seeds - len(arm.ended)) for arm in arms)
    if not seconds or not runs:
        return ""
    each = sum(seconds) / len(seconds)
    usd = [arm.usd for arm in arms if arm.usd is not None]
    price = f", {runs * sum(usd) / len(usd):.2f} USD" if usd else ""
    minutes = counted(max(1, round(runs * each / 60)), "minutes")
    return f" ({counted(runs, 'runs')}, about {minutes} here{price})"


def summary(arms: Mapping[str, Arm], verdicts: Sequence[Verdict]) -> Iterator[dict[str, str]]:
    """A row for each verdict."""
    for verdict in verdicts:
        name = f"{verdict.theirs} (control)" if arms[verdict.theirs].control else verdict.theirs
        shown = _difference_columns(verdict.total)
        yield {
            "variant": name,
            "compared with": verdict.ours,
            "verdict": verdict.word,
            "seeds": str(verdict.seeds),
        } | shown
