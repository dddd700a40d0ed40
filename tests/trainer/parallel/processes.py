"""Trainers in several processes that talk over gloo, as under torchrun, but with torch imported once."""

import multiprocessing
import os
import socket
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from trainer.config import RunConfig

PATIENCE_SECONDS = 300


def train(
    settings: dict[str, Any],
    run_dir: Path,
    processes: int,
    before: Callable[[RunConfig], None] | None = None,
    during: Callable[[Sequence[BaseProcess]], None] | None = None,
    **training: Any,
) -> list[int | None]:
    """Runs `settings`, changed by `training`, to the end in `run_dir`, each process after `before`; `during`
    may interrupt them. The exit status of each.
    """
    config = {**settings, "run_dir": str(run_dir), "training": {**settings["training"], **training}}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainer.run.loop", "tests.trainer.parallel.processes"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        context.Process(target=_train, args=(config, before, rank, processes, port))
        for rank in range(processes)
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


def _train(
    settings: dict[str, Any], before: Callable[[RunConfig], None] | None, rank: int, size: int, port: int
) -> None:
    from trainer.run.loop import run

    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    config = RunConfig.model_validate(settings)
    if before is not None:
        before(config)
    raise SystemExit(run(config))
