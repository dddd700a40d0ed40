"""What is looked at in each version as it is made. Most checks stop what comes after; each says in one
sentence what it saw and what is allowed.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from pipeline.assets.operations.resources import PipelineResources
from pipeline.steps import checks
from pipeline.steps.checks import Finding
from pipeline.steps.dedup.limits import alarms
from pipeline.store import keys
from pipeline.store.versions import Version

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Check:
    """Part of its asset's step, since a step of its own would take half as long again. One that does not
    block only warns.
    """

    name: str
    description: str
    look: Callable[[PipelineResources, Version], Finding]
    blocking: bool = True

    def result(self, workshop: PipelineResources, version: Version) -> dg.AssetCheckResult:
        found = self.look(workshop, version)
        if not found.passed:
            log.log(logging.ERROR if self.blocking else logging.WARNING, "%s", found.said)
        severity = dg.AssetCheckSeverity.ERROR if self.blocking else dg.AssetCheckSeverity.WARN
        return dg.AssetCheckResult(
            passed=found.passed,
            check_name=self.name,
            severity=severity,
            description=found.said,
            metadata=found.numbers,
        )


def specs(asset: dg.AssetKey, wanted: Sequence[Check]) -> list[dg.AssetCheckSpec]:
    return [
        dg.AssetCheckSpec(check.name, asset=asset, blocking=check.blocking, description=check.description)
        for check in wanted
    ]


def results(
    workshop: PipelineResources, version: Version, wanted: Sequence[Check]
) -> Iterator[dg.AssetCheckResult]:
    return (check.result(workshop, version) for check in wanted)


def _no_more_than_expected(workshop: PipelineResources, version: Version) -> Finding:
    found = alarms(version, workshop.recipe.dedup_guard)
    removed, documents = version.counts["removed"], version.counts["documents"]
    said = (
        f"dedup removes {removed:,} of {documents:,} documents, no corpus or cluster more than "
        "dedup_guard allows"
    )
    return Finding(
        not found,
        "; ".join(found) or said,
        {"alarms": len(found), "share removed": removed / max(documents, 1)},
    )


RAW = [
    Check(
        "little_set_aside",
        "Few rows cannot be read: `checks.max_set_aside_share`.",
        lambda shop, version: checks.set_aside(version, shop.recipe.checks),
    )
]
SCRUBBED = [
    Check(
        "no_jump_in_pii",
        "Not much more PII than in the version before: `checks.max_pii_jump`.",
        lambda shop, version: checks.pii_rate(shop.store, version, shop.recipe.checks),
        blocking=False,
    )
]
QUALITY = [
    Check(
        "enough_is_kept",
        "Quality leaves enough: `checks.max_rejected_share`.",
        lambda shop, version: checks.rejected(version, shop.recipe.checks),
    )
]
DEDUP = [
    Check(
        "removes_no_more_than_expected",
        "No corpus loses a larger share, and no document stands for more, than `dedup_guard` in the recipe "
        "allows.",
        _no_more_than_expected,
    )
]
SHARDS = [
    Check(
        "adds_up",
        "Every document and token is accounted for, from raw to shards.",
        lambda shop, version: checks.adds_up(shop.store, keys.corpus_of_shards(version.key)),
    ),
    Check(
        "is_sound",
        "Sizes and hashes are those recorded: `checks.shard_hashes`.",
        lambda shop, version: checks.sound(version, shop.recipe.checks),
    ),
    Check(
        "bytes_per_token",
        "The tokenizer fits the corpus: `checks.min_bytes_per_token`.",
        lambda shop, version: checks.bytes_per_token(version, shop.recipe.checks),
    ),
]
PRETRAINED = [
    Check(
        "losses_are_finite",
        "No loss of the run is NaN or infinite.",
        lambda shop, version: checks.finite(shop.store, version),
    )
]
EVALUATION = [
    Check(
        "beats_a_bigram_model",
        "The model knows more than which token follows which.",
        lambda shop, version: checks.beats_bigram(shop.store, version),
        blocking=False,
    )
]
EXPORTED = [
    Check(
        "loads",
        "The exported files are read back, and computed with.",
        lambda _, version: checks.loads(version),
    )
]
