"""The verdict on a variant: whether its runs and those of another one differ, and on which texts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pipeline.reports.variant_arms import Arm, changed_between, decisive
from pipeline.steps.model import significance
from pipeline.steps.model.benchmark import AskedBenchmark
from pipeline.steps.model.significance import Difference, Text


@dataclass(frozen=True)
class Verdict:
    """The verdict on `theirs` against `ours`, over so many `seeds` of each, at the level for so many
    `comparisons`.

    `rows` has the difference on each measure, `wrong` the difference of the shares of wrong answers. `total`
    is the difference over all measures that are `decisive`, None with fewer than two seeds. `few` has the
    decisive measures with fewer documents, or sources, than FEWEST, each with their number. `changed` has the
    corpora that did not hold the same text for all runs, although their settings are the same. `gone`: why
    runs cannot be looked for, by variant. `lost`: what a tokenizer does not give back, by variant.
    """

    ours: str
    theirs: str
    seeds: int
    comparisons: int
    total: Difference | None
    rows: Mapping[str, Difference]
    wrong: Mapping[str, Difference]
    few: Mapping[str, int]
    changed: Sequence[str]
    gone: Mapping[str, str]
    lost: Mapping[str, str]

    @property
    def word(self) -> str:
        if self.few or self.changed or self.gone or self.lost:
            return significance.UNSURE
        enough = self.total is not None and self.seeds >= significance.LOOKS[0]
        return self.total.word if self.total and enough else significance.UNDECIDED


def compared(arms: Iterable[Arm]) -> list[Arm]:
    """The arms that have enough seeds for a verdict."""
    return [arm for arm in arms if len(arm.ended) >= significance.LOOKS[0]]


def decide(compared_on: Sequence[AskedBenchmark], ours: Arm, theirs: Arm, comparisons: int) -> Verdict:
    """Compares two arms over their first seeds: the largest number of LOOKS that both have, or two."""
    ended = min(len(ours.ended), len(theirs.ended))
    seeds = max((number for number in (2, *significance.LOOKS) if number <= ended), default=ended)
    size = {one.name: one.sizes for one in compared_on}
    deciding = [one.name for one in decisive(compared_on)]
    few = {name: len(size[name]) for name in deciding if len(size[name]) < significance.FEWEST}
    changed = changed_between([ours, theirs])
    gone = {arm.name: arm.gone for arm in (ours, theirs) if arm.gone}
    lost = {arm.name: arm.lost for arm in (ours, theirs) if arm.lost}
    if seeds < 2:
        return Verdict(ours.name, theirs.name, seeds, comparisons, None, {}, {}, few, changed, gone, lost)
    level = significance.alpha(seeds, comparisons)

    def difference_on(scores: str, names: Iterable[str]) -> Difference:
        one, other = (getattr(arm, scores) for arm in (ours, theirs))
        sizes = {name: np.ones(one[name].shape[1]) if scores == "wrong" else size[name] for name in names}
        texts = [Text(one[name][:seeds], other[name][:seeds], sizes[name]) for name in sizes]
        return significance.difference(texts, level)

    return Verdict(
        ours.name,
        theirs.name,
        seeds,
        comparisons,
        difference_on("bits", deciding),
        {name: difference_on("bits", [name]) for name in size},
        {one.name: difference_on("wrong", [one.name]) for one in compared_on if one.benchmark.metric},
        few,
        changed,
        gone,
        lost,
    )


def against(compared_on: Sequence[AskedBenchmark], arms: Mapping[str, Arm], base: str) -> list[Verdict]:
    """The verdict on each other arm. Looking at several and taking the best is corrected for: as many
    comparisons are made as variants have enough seeds, but for negative controls.
    """
    others = [arm for arm in arms.values() if arm.name != base]
    number = max(1, sum(arm.control is None for arm in compared(others)))
    return [decide(compared_on, arms[base], arm, 1 if arm.control else number) for arm in others]


def ranks(compared_on: Sequence[AskedBenchmark], arms: Iterable[Arm]) -> dict[str, int]:
    """The rank of each arm with enough seeds: 1, and 1 for each arm that is better. All pairs are compared,
    so arms that nothing tells apart share a rank.
    """
    enough = compared(arms)
    pairs = list(combinations(enough, 2))
    found = {arm.name: 1 for arm in enough}
    for ours, theirs in pairs:
        word = decide(compared_on, ours, theirs, len(pairs)).word
        if word in (significance.BETTER, significance.WORSE):
            found[ours.name if word == significance.BETTER else theirs.name] += 1
    return found
