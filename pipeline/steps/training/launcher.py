"""How the trainer is started: alone, in several processes that torchrun keeps together, or on several
hosts.
"""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from pipeline.recipe.launch import LaunchParams
from pipeline.steps.training.process_group import TrainerKilledError, run_group
from pipeline.steps.training.ssh_launcher import Hosts
from trainer.system import launch


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


def launcher(params: LaunchParams, threads: int | None) -> Launcher:
    """What `launch:` of a recipe asks for. `threads` of each process; None: its share of the cores."""
    if params.hosts:
        return Hosts(params.hosts, params.nproc_per_node, threads)
    return ThisMachine(params.nproc_per_node, threads)
