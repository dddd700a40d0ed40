"""Starts the trainer: in one process, in several under torchrun, on a Ray cluster, or by the command of the
recipe; and its commands that print a result and end.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO

from pipeline.recipe.sections import LaunchParams
from pipeline.steps.training.process_group import TrainerKilledError, run_group
from pipeline.store.errors import PipelineError
from trainer.system import launch, terminal
from trainer.system.errors import NOT_PASSED, install
from trainer.system.signals import stop_with_parent


@dataclass(frozen=True)
class Launcher:
    """Starts the trainer. `threads`: OpenMP threads of each process; None: its share of the cores."""

    params: LaunchParams
    threads: int | None

    def run(
        self,
        config: Path,
        variables: Mapping[str, str],
        poll: Callable[[], bool],
        errors: IO[bytes] | None = None,
    ) -> int:
        """Trains until the trainer ends and returns its exit status; a second call resumes the run.

        The trainer gets `variables` in its environment. Its standard error goes to `errors`, else to that of
        this process. `poll` is called repeatedly and stops training by returning False. However this ends,
        the process group of the trainer is gone afterwards.

        Raises PipelineError when the program of the recipe's command is missing or cannot be run, and
        TrainerKilledError when a signal that this process did not send ended the trainer.
        """
        environment = {**self._environment(), **variables}
        status = run_group(self._command(config), environment, poll, errors, self._stop_signal())
        if status < 0:
            raise TrainerKilledError(f"the trainer {launch.ended(status)}")
        return status

    def _command(self, config: Path) -> list[str]:
        if self.params.kind == "ray":
            return self._on_ray(config)
        if self.params.kind != "command":
            return launch.command(config, self.params.nproc_per_node)
        program = self.params.command[0]
        if shutil.which(program) is None:
            raise PipelineError(
                f"launch.command: {program!r} is not a program on this machine: install it, add its "
                "directory to PATH, or write its full path in the recipe"
            )
        return [*self.params.command, *launch.trainer_arguments(config)]

    def _stop_signal(self) -> signal.Signals:
        """srun passes SIGUSR1 on. To SIGTERM it answers by killing its tasks, which then save nothing."""
        command = self.params.command
        return signal.SIGUSR1 if command and Path(command[0]).name == "srun" else signal.SIGTERM

    def check_nodes(self, directory: Path) -> None:
        """Checks, before data is made, that all nodes see the directory. Raises ClusterError."""
        if self.params.kind == "ray":
            _ray_nodes().check_shared(directory, self.params.address)

    def _on_ray(self, config: Path) -> list[str]:
        params = self.params
        training = _ray_nodes().Training(
            str(config.absolute()), params.address, params.nodes, params.nproc_per_node, self.threads
        )
        return list(training.command())

    def _environment(self) -> dict[str, str]:
        environment = launch.environment(self.threads, self.params.nproc_per_node)
        if self.params.kind == "command" and self.threads is None:
            # The trainer's machines and the processes on each are not known here; it chooses when it starts.
            del environment["OMP_NUM_THREADS"]
        return {**os.environ, **environment}


def _ray_nodes() -> ModuleType:
    try:
        from pipeline.steps.training import ray_nodes
    except ModuleNotFoundError as error:
        raise PipelineError(f"launch.kind ray needs the package ray: run {install('ray')}") from error
    return ray_nodes


def run_trainer(*arguments: str, threads: int | None = None) -> str:
    """The standard output of `python -m trainer ...`. Raises PipelineError with its last error."""
    shared = _shared.get()
    with terminal.doing(f"running `python -m trainer {arguments[0]}`"):
        ended = shared.run(arguments) if shared else _run_alone(arguments, threads)
    if ended.returncode not in (0, NOT_PASSED):
        lines = ended.stderr.strip().splitlines() or ["it wrote no error message"]
        said = f": {lines[-1]}" if ended.returncode > 0 else ""
        raise PipelineError(f"`python -m trainer {arguments[0]}` {launch.ended(ended.returncode)}{said}")
    return ended.stdout


def _run_alone(arguments: Sequence[str], threads: int | None) -> "CompletedProcess[str]":
    environment = {**os.environ, **launch.environment(threads)}
    command = [sys.executable, "-m", "trainer", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, preexec_fn=stop_with_parent
    )


@contextmanager
def one_trainer() -> Iterator[None]:
    """While this lasts, `run_trainer` gives its commands to one process, since starting one takes seconds."""
    with (
        TemporaryFile("a+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "trainer", "several"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **launch.environment()},
            preexec_fn=stop_with_parent,
        ) as process,
    ):
        before = _shared.set(_SharedTrainer(process, errors))
        try:
            yield
        except BaseException:
            process.kill()
            raise
        finally:
            _shared.reset(before)


@dataclass(frozen=True)
class _SharedTrainer:
    process: "subprocess.Popen[str]"
    errors: IO[str]

    def run(self, arguments: Sequence[str]) -> "CompletedProcess[str]":
        assert self.process.stdin and self.process.stdout
        begin = self.errors.seek(0, os.SEEK_END)
        with suppress(BrokenPipeError):
            print(json.dumps(arguments), file=self.process.stdin, flush=True)
        said = self.process.stdout.readline()
        self.errors.seek(begin)
        if not said:
            return CompletedProcess(arguments, self.process.wait(), "", self.errors.read())
        ended = json.loads(said)
        return CompletedProcess(arguments, ended["status"], ended["printed"], self.errors.read())


_shared: ContextVar[_SharedTrainer | None] = ContextVar("the process of `one_trainer`", default=None)
