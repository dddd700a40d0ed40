"""The job `verify`, which looks for damage in the store, and its schedule."""

import dagster as dg
from pydantic import Field

from pipeline.assets.asset import given, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.steps.verification import longest_unread, stored, verify
from pipeline.store.errors import PipelineError

MINUTES = 20  # about 1.2 TB, where a core hashes a gigabyte in a second
OP = "look_for_damage"  # not the job's name: Dagster takes a name once


class VerifyConfig(dg.Config):
    """How closely to look."""

    deep: bool = Field(default=False, description="Read every file of the store and compare its hash.")
    minutes: float | None = Field(
        default=None,
        gt=0,
        description="Read files for so many minutes, and then to the end of a version or checkpoint: those "
        "that were not read for longest.",
    )


def verify_job(shown: str, used: UsedRecipe) -> dg.JobDefinition:
    """Fails when something is damaged, so that an alert is sent. The description ends in `shown`."""

    @dg.op(
        name=used.name(OP), description="Looks at the manifests, sizes and hashes of everything in the store."
    )
    @user_errors_as_failures
    @given(used)
    def _op(context: dg.OpExecutionContext, workshop: PipelineResources, config: VerifyConfig) -> None:
        store, minutes = workshop.store, config.minutes
        places = longest_unread(store, minutes) if minutes else stored(store)
        found = verify(store, places, config.deep or minutes is not None)
        for damaged in found.damaged:
            context.log.error(
                f"{damaged.place}: {'; '.join(map(str, damaged.damage))}. Made from it: "
                f"{', '.join(damaged.made_from_it) or 'nothing'}. To repair it: {used.meant(damaged.mend)}"
            )
        if found.damaged:
            raise PipelineError(used.meant(f"{found}: `python -m pipeline verify` lists them"))
        context.log.info(str(found))

    @dg.job(
        name=used.name("verify"),
        tags=used.tags,
        executor_def=dg.in_process_executor,
        description=f"Looks for damaged files in the store and names them. {shown}",
    )
    def _job() -> None:
        _op()

    return _job


def daily_schedule(job: dg.JobDefinition, timezone: str, used: UsedRecipe) -> dg.ScheduleDefinition:
    """Off until somebody turns it on in the UI."""
    return dg.ScheduleDefinition(
        name=used.name("daily_verify"),
        job=job,
        cron_schedule="0 5 * * *",
        execution_timezone=timezone,
        run_config={"ops": {used.name(OP): {"config": {"minutes": MINUTES}}}},
        description=f"Starts the job verify each morning at 5:00 {timezone}; for {MINUTES} minutes it reads "
        "what was not read for longest.",
    )
