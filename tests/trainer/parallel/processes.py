"""Trainers in several processes that talk over gloo, as under torchrun, but with torch imported once."""

import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from trainer.config import RunConfig

PATIENCE_SECONDS = 300
CONTEXT = multiprocessing.get_context("forkserver")
Interrupt = Callable[[Sequence[BaseProcess]], None]


def train(
    settings: dict[str, Any],
    run_dir: Path,
    processes: int,
    before: Callable[[RunConfig], None] | None = None,
    during: Interrupt | None = None,
    **training: Any,
) -> list[int | None]:
    """Runs `settings`, changed by `training`, to the end in `run_dir`, each process after `before`; `during`
    may interrupt them. The exit status of each.
    """
    config = {**settings, "run_dir": str(run_dir), "training": {**settings["training"], **training}}
    return together(_train, processes, config, before, during=during)


def together(
    target: Callable[..., None], processes: int, *arguments: Any, during: Interrupt | None = None
) -> list[int | None]:
    """Calls `target` with the arguments in processes that find each other. The exit status of each."""
    CONTEXT.set_forkserver_preload(["trainer.run.loop", "tests.trainer.parallel.processes"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        variables = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1"}
        variables["MASTER_PORT"] = str(free.getsockname()[1])
    started = [
        CONTEXT.Process(target=_one, args=(rank, variables, target, arguments)) for rank in range(processes)
    ]
    for process in started:
        process.start()
    if during is not None:
        during(started)
    for process in started:
        process.join(PATIENCE_SECONDS)
    for process in started:
        process.kill()
    return [process.exitcode for process in started]


def sending(number: int, when: Callable[[], bool]) -> Interrupt:
    """Sends a signal to the only process as soon as something is so."""

    def interrupt(processes: Sequence[BaseProcess]) -> None:
        (process,) = processes
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not when():
            assert process.is_alive() and time.monotonic() < deadline
            time.sleep(0.002)
        assert process.pid is not None
        os.kill(process.pid, number)

    return interrupt


def _one(rank: int, variables: dict[str, str], target: Callable[..., None], arguments: Sequence[Any]) -> None:
    os.environ |= {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    target(*arguments)


def _train(settings: dict[str, Any], before: Callable[[RunConfig], None] | None) -> None:
    from trainer.run.loop import run

    config = RunConfig.model_validate(settings)
    if before is not None:
        before(config)
    raise SystemExit(run(config))
