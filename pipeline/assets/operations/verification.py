"""The job `verify`, which looks for damage in the store, and its schedule."""

from typing import Any

import dagster as dg
from pydantic import Field

from pipeline.assets.asset import user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.steps.lineage.verification import VerificationError, stored, verify

OP = "look_for_damage"  # not the job's name: Dagster takes a name once


class VerifyConfig(dg.Config):
    """How closely to look."""

    deep: bool = Field(default=False, description="Read every file of the store and compare its hash.")


def verify_job(name: str, config: dict[str, Any], used: str) -> dg.JobDefinition:
    """Fails when something is damaged, so that the sensor of failed runs alerts."""

    @dg.op(name=OP, description="Looks at the manifests, sizes and hashes of everything in the store.")
    @user_errors_as_failures
    def _op(context: dg.OpExecutionContext, workshop: PipelineResources, config: VerifyConfig) -> None:
        found = verify(workshop.store, stored(workshop.store), config.deep)
        for damaged in found.damaged:
            context.log.error(
                f"{damaged.place}: {'; '.join(map(str, damaged.damage))}. Made from it: "
                f"{', '.join(damaged.made_from_it) or 'nothing'}. To mend it: {damaged.mend}"
            )
        if found.damaged:
            raise VerificationError(f"{found}: `python -m pipeline verify` lists them")
        context.log.info(str(found))

    @dg.job(
        name=name, config=config, description=f"Looks for damaged files in the store and names them. {used}"
    )
    def _job() -> None:
        _op()

    return _job


def weekly_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Off until somebody turns it on in the UI."""
    return dg.ScheduleDefinition(
        name="weekly_verify",
        job=job,
        cron_schedule="0 5 * * 0",
        run_config={"ops": {OP: {"config": {"deep": True}}}},
        description="Starts `verify` each Sunday; reads every file of the store.",
    )
