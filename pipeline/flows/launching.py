"""How the trainer is started: alone, or in several processes that torchrun keeps together."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.stages.params import Params
from trainer import launch


class LaunchParams(Params):
    """What the processes share is `training.parallel`."""

    kind: Literal["subprocess", "torchrun"] = Field("subprocess", description="One process, or as many as torchrun is told to start on this machine.")
    nproc_per_node: int = Field(1, ge=1, description="Processes on this machine; with GPUs, one for each.")

    @model_validator(mode="after")
    def _several_need_torchrun(self) -> Self:
        if self.kind == "subprocess" and self.nproc_per_node > 1:
            raise ValueError(f"nproc_per_node {self.nproc_per_node} needs kind: torchrun")
        return self

    def command(self, config: Path) -> list[str]:
        return launch.command(config, self.nproc_per_node)

    def environment(self, threads: int | None) -> dict[str, str]:
        """Variables to add for each process; `threads` None: its share of the cores."""
        return launch.environment(threads, self.nproc_per_node)
