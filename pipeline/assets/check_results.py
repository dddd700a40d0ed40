"""The checks of pipeline.steps.checks as Dagster asset checks.

Each runs inside the step of its asset, because a separate step would take half as long again.
"""

import logging
from collections.abc import Iterator

import dagster as dg

from pipeline.assets.metadata import asset_key
from pipeline.assets.operations.resources import PipelineResources
from pipeline.steps.checks import Check, Subject, of_key
from pipeline.store.manifest import Version

log = logging.getLogger(__name__)


def specs(key: str) -> list[dg.AssetCheckSpec]:
    """The checks of the asset that the store keeps under `key`."""
    return [
        dg.AssetCheckSpec(
            check.name, asset=asset_key(key), blocking=check.blocking, description=check.description
        )
        for check in of_key(key)
    ]


def results(workshop: PipelineResources, version: Version) -> Iterator[dg.AssetCheckResult]:
    """Runs the checks of a version, and also logs each failure."""
    subject = Subject(version, workshop.store, workshop.recipe)
    return (_result(check, subject) for check in of_key(version.key))


def _result(check: Check, subject: Subject) -> dg.AssetCheckResult:
    found = check.look(subject)
    if not found.passed:
        log.log(logging.ERROR if check.blocking else logging.WARNING, "%s", found.message)
    return dg.AssetCheckResult(
        passed=found.passed,
        check_name=check.name,
        severity=dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN,
        description=found.message,
        metadata=found.numbers,
    )
