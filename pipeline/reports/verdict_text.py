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
    "difference that these runs would have shown with probability .8. Benchmarks count by the bits per byte "
    "of the right answer; the accuracy, in percent, only beside its interval. Of a tuning, "
    "held-out answers decide. docs/decide.md."
)


def rows(found: Verdict) -> list[dict[str, str]]:
    """A row for each text and benchmark, and one for all."""
    named = dict(found.rows)
    if found.total and len(named) > 1:
        named["all"] = found.total
    return [
        {"text": name, **_difference_columns(one), "accuracy": _accuracy(found.wrong.get(name))}
        for name, one in named.items()
    ]


def _difference_columns(one: Difference | None) -> dict[str, str]:
    if one is None:
        return dict.fromkeys(("difference", "interval", "would be found"), "-")
    return {
        "difference": f"{one.value:+.4f}",
        "interval": f"{one.low:+.4f} to {one.high:+.4f}",
        "would be found": f"{one.detectable:.4f}",
    }


def _accuracy(wrong: Difference | None) -> str:
    return "-" if wrong is None else f"{-100 * wrong.value:+.1f} ± {100 * (wrong.high - wrong.value):.1f}"


def sentence(found: Verdict) -> str:
    """The word, and what it rests on."""
    if found.few:
        texts = ", ".join(f"{name} has {number}" for name, number in found.few.items())
        return (
            f"cannot tell {found.theirs} from {found.ours}: each text needs at least {FEWEST} "
            f"documents, or sources where it has several documents of one, and {texts}."
        )
    if found.changed:
        return (
            f"cannot tell {found.theirs} from {found.ours}: the source of {', '.join(found.changed)} changed "
            "between their runs, so they were trained on different text."
        )
    if not found.total or found.word == UNDECIDED:
        have = "has" if found.seeds == 1 else "have"
        return (
            f"{UNDECIDED} on {found.theirs} against {found.ours}: it needs {LOOKS[0]} seeds of each, "
            f"{found.seeds} {have} ended."
        )
    if found.word == ALIKE:
        said = f"{found.theirs} and {found.ours} are {ALIKE}"
    else:
        said = f"{found.theirs} is {found.word} than {found.ours}"
    of_several = f", corrected for {found.comparisons} comparisons" if found.comparisons > 1 else ""
    total = found.total
    return (
        f"{said}: {total.value:+.4f} bits per byte, {total.low:+.4f} to {total.high:+.4f} "
        f"({found.seeds} seeds of each{of_several})."
    )


def quoted(recipe: Recipe) -> str:
    """The evaluation texts that training text may quote; empty if it may quote none."""
    removing = recipe.decontamination if recipe.removes_contaminated else None
    searched = [one.source for one in removing.sets] if removing else []
    names = ", ".join(text.name for text in recipe.evaluation.texts if text.source not in searched)
    return names and f"Training text may quote {names}: `decontamination: benchmarks` removes what does."


def control(arms: Mapping[str, Arm], found: Sequence[Verdict]) -> str:
    """Whether a negative control lost, without which no verdict is to be trusted."""
    controls = [one for one in found if arms[one.theirs].control]
    if not controls:
        return "No variant is a negative control: `training: {control: duplicates}` makes one that must lose."
    return " ".join(map(_of_control, controls))


def _of_control(one: Verdict) -> str:
    if not one.total or one.seeds < LOOKS[0]:
        return f"The negative control {one.theirs} has not been trained with {LOOKS[0]} seeds yet."
    if one.word != WORSE:
        return (
            f"The negative control {one.theirs} did not lose ({one.total.value:+.4f} bits per byte, "
            f"{one.total.low:+.4f} to {one.total.high:+.4f}): these runs do not show a change that is known "
            "to hurt, so trust no verdict on a difference that is not much larger. Train for longer, with "
            "more seeds, or on more text."
        )
    return f"The negative control {one.theirs} lost, as it must, by {one.total.value:.4f} bits per byte."


def advice(found: Verdict, arms: Mapping[str, Arm], wanted: float) -> str:
    """What it would take to see a difference of `wanted` bits per byte, and what that costs here."""
    pair = [arms[found.ours], arms[found.theirs]]
    seconds = [arm.seconds for arm in pair if arm.seconds]
    if found.few:
        return (
            "Name text with more documents or sources in `evaluation.texts`; of a section, read more "
            "conversations, or hold more of them out with `shards.validation_fraction`."
        )
    if found.changed:
        return "--run trains those again that read what it does not hold any more."
    if not found.total:
        return f"Three seeds of each: {_needed_settings(pair, 3)}--run{_cost(3, pair, seconds)}."
    if found.total.detectable <= wanted and found.seeds >= LOOKS[0]:
        return ""
    for scale in (1, 4, 16, 64):
        needed = seeds_needed(found.total, found.seeds, found.comparisons, wanted, scale)
        if needed:
            cost = _cost(needed, pair, seconds)
            return f"To see a difference of {wanted:g}: {_needed_settings(pair, needed, scale)}--run{cost}."
    return f"No number of seeds up to {LOOKS[-1]} would show a difference of {wanted:g}: train longer."


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


def summary(arms: Mapping[str, Arm], found: Sequence[Verdict]) -> Iterator[dict[str, str]]:
    """A row for each verdict."""
    for one in found:
        name = f"{one.theirs} (control)" if arms[one.theirs].control else one.theirs
        shown = _difference_columns(one.total)
        yield {
            "variant": name,
            "compared with": one.ours,
            "verdict": one.word,
            "seeds": str(one.seeds),
        } | shown
