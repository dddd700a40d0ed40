"""`launch:` of a recipe."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.store.engines.local import RAY_ADDRESS
from pipeline.store.params import Params


class LaunchParams(Params):
    """How the trainer is started. What its processes share is set by `training.parallel`."""

    kind: Literal["subprocess", "torchrun", "command", "ray"] = Field(
        "subprocess",
        description="`subprocess` starts one process, `torchrun` starts `nproc_per_node` processes on this "
        "machine, `ray` starts as many on each of `nodes` nodes of a Ray cluster, and `command` runs a "
        "command of your own, for example `srun`.",
    )
    nproc_per_node: int = Field(
        1,
        ge=1,
        le=1024,
        description="Processes on a machine for kinds `torchrun` and `ray`: with GPUs, one for each GPU.",
    )
    nodes: int = Field(
        1,
        ge=1,
        le=100_000,
        description="For kind `ray`: nodes of the cluster to train on. They need the store and this "
        "environment under the same paths: docs/cluster.md.",
    )
    address: str = Field(
        "auto",
        pattern=RAY_ADDRESS,
        description="For kind `ray`: host and port of the cluster's head node, such as `10.0.0.1:6379`. "
        "`auto` takes RAY_ADDRESS, else the cluster of this machine.",
    )
    command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        description="For kind `command`: a program and its arguments, which end in torchrun and its options, "
        "or in python. The pipeline appends `-m trainer CONFIG`. No shell reads it.",
    )

    usd_per_hour: float | None = Field(
        None,
        gt=0,
        description="Price in USD of an hour of training, on all machines together. When it is set, the UI, "
        "`summary` and the model card say what the training cost.",
    )

    @model_validator(mode="after")
    def _kind_has_what_it_needs(self) -> Self:
        if self.kind == "command" and not self.command:
            raise ValueError("kind: command needs a command, for example [srun, --nodes=2, torchrun, ...]")
        if self.command and self.kind != "command":
            raise ValueError("command is for kind: command; set the kind, or leave out command")
        if self.nproc_per_node > 1 and self.kind == "command":
            raise ValueError(
                f"nproc_per_node {self.nproc_per_node} has no effect with kind: command; give torchrun "
                "--nproc-per-node in the command"
            )
        if self.nproc_per_node > 1 and self.kind == "subprocess":
            raise ValueError(f"nproc_per_node {self.nproc_per_node} needs kind: torchrun")
        for name in ("nodes", "address"):
            if self.kind != "ray" and getattr(self, name) != LaunchParams.model_fields[name].default:
                raise ValueError(f"{name} needs kind: ray; set the kind, or leave out {name}")
        return self
