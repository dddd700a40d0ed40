"""`launch:` of a recipe."""

import re
from collections import Counter
from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.store.params import Params

HOST = r"(\w[\w.-]*@)?\w[\w.-]*"  # and no option of ssh


class LaunchParams(Params):
    """What the processes share is `training.parallel`."""

    kind: Literal["subprocess", "torchrun"] = Field(
        "subprocess", description="One process, or as many as torchrun is told to start."
    )
    nproc_per_node: int = Field(
        1, ge=1, description="Processes on this machine, or on each host; with GPUs, one for each."
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="Machines to train on, over ssh, by names or addresses under which they reach each "
        "other; none: on this one. "
        "They see this code, its environment and the store at the same paths.",
    )

    @model_validator(mode="after")
    def _several_need_torchrun(self) -> Self:
        if self.kind == "subprocess" and (self.nproc_per_node > 1 or self.hosts):
            given = "hosts" if self.hosts else f"nproc_per_node {self.nproc_per_node}"
            raise ValueError(f"{given} needs kind: torchrun")
        for host in self.hosts:
            if not re.fullmatch(HOST, host):
                raise ValueError(f"{host!r} is no name of a host; write name or user@name")
        twice = [
            name
            for name, times in Counter(host.rpartition("@")[2] for host in self.hosts).items()
            if times > 1
        ]
        if twice:
            raise ValueError(
                f"hosts: {twice[0]} is there twice; nproc_per_node says how many processes each has"
            )
        return self
