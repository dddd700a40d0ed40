"""The code location in this process: its job, its sensor and its schedule, run by hand."""

from dataclasses import dataclass

import dagster as dg

from pipeline.assets.operations.resources import PipelineResources


@dataclass
class Location:
    """Definitions beside the instance that they run on."""

    instance: dg.DagsterInstance
    definitions: dg.Definitions

    def retokenize(self, request: dg.RunRequest | None = None) -> set[str]:
        """Runs the job, on the assets of a request if there is one; what was materialized."""
        job = self.definitions.resolve_job_def("retokenize")
        selection = None if request is None else list(request.asset_selection or [])
        result = job.execute_in_process(
            instance=self.instance, asset_selection=selection, tags={} if request is None else request.tags
        )
        assert result.success
        return {
            "/".join(event.asset_key.path)
            for event in result.get_asset_materialization_events()
            if event.asset_key
        }

    def tick(self) -> dg.SensorResult:
        with dg.build_sensor_context(
            instance=self.instance, resources={"workshop": PipelineResources()}
        ) as context:
            result = self.definitions.resolve_sensor_def("corpora_changed")(context)
        assert isinstance(result, dg.SensorResult)
        return result

    def night(self) -> dg.RunRequest | dg.SkipReason:
        with dg.build_schedule_context(
            instance=self.instance, resources={"workshop": PipelineResources()}
        ) as context:
            result = self.definitions.resolve_schedule_def("nightly_retokenize")(context)
        assert isinstance(result, dg.RunRequest | dg.SkipReason)
        return result
