"""How the trainer is started: alone, in several processes that torchrun keeps together, or on several
hosts.
"""

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol, Self

from pydantic import Field, model_validator

from pipeline.steps.training.process_group import TrainerKilledError, run_group
from pipeline.steps.training.ssh_launcher import Hosts
from pipeline.store.params import Params
from trainer.system import launch

HOST = r"(\w[\w.-]*@)?\w[\w.-]*"  # and no option of ssh


class Launcher(Protocol):
    """A way to start trainers. After a TrainerKilledError it can be asked again, and goes on with what is
    left.
    """

    def run(
        self,
        config: Path,
        variables: Mapping[str, str],
        poll: Callable[[], bool],
        errors: IO[bytes] | None = None,
    ) -> int:
        """Trains until it ends and returns its exit status. TrainerKilledError when something else ended it.

        Each process has `variables` in its environment, and writes its standard error to `errors`, or where
        this process does. `poll` is called all the while and stops training by returning False; however this
        ends, no trainer is left.
        """


@dataclass(frozen=True)
class ThisMachine:
    """One process, or several under torchrun."""

    processes: int
    threads: int | None

    def run(
        self,
        config: Path,
        variables: Mapping[str, str],
        poll: Callable[[], bool],
        errors: IO[bytes] | None = None,
    ) -> int:
        environment = {**os.environ, **launch.environment(self.threads, self.processes), **variables}
        status = run_group(launch.command(config, self.processes), environment, poll, errors)
        if status < 0:
            killed = f"the trainer was killed by {signal.Signals(-status).name}"
            hint = ": is there enough memory?" if -status == signal.SIGKILL else ""
            raise TrainerKilledError(f"{killed}{hint}")
        return status


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

    def launcher(self, threads: int | None) -> Launcher:
        """`threads` of each process; None: its share of the cores."""
        if self.hosts:
            return Hosts(self.hosts, self.nproc_per_node, threads)
        return ThisMachine(self.nproc_per_node, threads)
