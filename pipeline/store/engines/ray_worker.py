"""What runs on the nodes of a Ray cluster: the tasks, and what tells the run about them."""

import faulthandler
import logging
import os
import pickle
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import ray
from ray import exceptions

from pipeline.store.engines.same_code import Installed, refusal
from pipeline.store.errors import PipelineError
from trainer.system.errors import TrainerError
from trainer.system.open_files import allow_enough
from trainer.system.terminal import STDERR

END_WITHIN_SECONDS = 10.0
LOG_CHARACTERS = 2000  # of the end of a worker's log, and of the stack of one that hangs
READ_BYTES = 100_000
LATE = re.compile(r"^Timeout \(\d+:\d\d:\d\d.*\)!\n", re.MULTILINE)  # faulthandler's, before the stacks
STACK = "(most recent call first):\n"  # of one thread; that of the main thread is last


class ClusterError(PipelineError):
    """The Ray cluster cannot be reached or is not set up for this work."""


@contextmanager
def naming_nodes_without_code() -> Iterator[None]:
    """Raises ClusterError when a node cannot load what it is to run, which Ray answers with a stack trace."""
    try:
        yield
    except exceptions.RayError as error:
        said = str(error)
        if "failed to import on the worker" not in said:
            raise
        address = re.search(r"\bip=([\w.:]+)", said)
        raise ClusterError(
            f"node {address[1] if address else ''} of the Ray cluster cannot load the code of the run "
            f"({said.splitlines()[-1]}): install the same code and environment on all of them, and run again"
        ) from error


@dataclass(frozen=True)
class Shared:
    """What all tasks of a map have in common. `function` is pickled: only `path` makes it importable."""

    path: tuple[str, ...]
    installed: Installed
    function: bytes


@dataclass(frozen=True)
class Outcome:
    """What a task returned or raised, its seconds, and what it logged: logger, level and message."""

    node: str
    seconds: float
    value: Any
    error: Exception | None
    logged: list[tuple[str, int, str]]

    def result(self) -> Any:
        for name, level, message in self.logged:
            logging.getLogger(name).log(level, "%s (on node %s)", message, self.node)
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True)
class Place:
    """Where a task runs, and where its worker writes its log, which had `log_bytes` when the task began."""

    node: str
    node_id: str
    pid: int
    log: str
    log_bytes: int

    @classmethod
    def here(cls) -> "Place":
        node_id = ray.get_runtime_context().get_node_id()
        log = str(Path(f"/proc/self/fd/{STDERR}").readlink())
        return cls(node_name(), node_id, os.getpid(), log, os.fstat(STDERR).st_size)

    def log_end(self) -> str:
        """The end of what the task wrote to its log. Of a stack that was written because it is late, the
        place where it hangs, which is at the beginning.
        """
        try:
            with Path(self.log).open("rb") as file:
                file.seek(max(self.log_bytes, os.fstat(file.fileno()).st_size - READ_BYTES))
                said, *stacks = LATE.split(file.read().decode(errors="replace"))
        except OSError:
            return ""
        stack = "".join(stacks).rpartition(STACK)[2]
        return f"{said[-LOG_CHARACTERS:]}{stack[:LOG_CHARACTERS]}".strip()


class TaskStarts:
    """Where and when each task began. This actor lives on the node of the run."""

    def __init__(self) -> None:
        self._begun: dict[int, tuple[Place, float]] = {}

    def note(self, number: int, place: Place) -> None:
        self._begun[number] = place, time.monotonic()

    def among(self, numbers: Collection[int]) -> dict[int, tuple[Place, float]]:
        """Where the tasks with these numbers run, and for how many seconds, if they have begun. Forgets all
        others.
        """
        self._begun = {number: self._begun[number] for number in numbers if number in self._begun}
        now = time.monotonic()
        return {number: (place, now - at) for number, (place, at) in self._begun.items()}


@ray.remote(max_retries=0)
def run(shared: bytes, task: bytes, number: int, begun: Any, seconds: float) -> Outcome:
    """Runs one task. If it has not ended after `seconds`, its worker writes a stack trace into its log."""
    place, started = Place.here(), time.monotonic()
    # The run can say where a task died only if its place is known before the task can die.
    answer(begun.note.remote(number, place))
    collector = BufferingHandler(sys.maxsize)  # keeps warnings and errors, for the log of the run
    collector.setLevel(logging.WARNING)
    logging.getLogger().addHandler(collector)
    faulthandler.dump_traceback_later(seconds, file=STDERR)
    value, failed = None, None
    try:
        value = _function(shared)(pickle.loads(task))
    except Exception as error:
        failed = error
        failed.add_note(f"On node {place.node}:\n{traceback.format_exc()}{place.log_end()}")
    finally:
        faulthandler.cancel_dump_traceback_later()
        logging.getLogger().removeHandler(collector)
    logged = [(record.name, record.levelno, record.getMessage()) for record in collector.buffer]
    return Outcome(place.node, time.monotonic() - started, value, failed, logged)


@ray.remote(num_cpus=0, max_retries=0)
def end(place: Place) -> str:
    """Kills a worker on this node, also one that is stopped, and returns the end of its log."""
    try:
        if Path(f"/proc/{place.pid}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(place.pid, signal.SIGKILL)
    except OSError:  # it has ended
        pass
    return place.log_end()


@lru_cache(maxsize=1)
def _function(shared: bytes) -> Callable[[Any], Any]:
    try:
        allow_enough()
    except TrainerError as error:
        raise ClusterError(f"node {node_name()}: {error}") from None
    work: Shared = pickle.loads(shared)
    sys.path += [path for path in work.path if path not in sys.path]
    if refused := refusal(work.installed, node_name()):
        raise ClusterError(refused)
    # Encoders otherwise start a thread for each core of the node.
    os.environ["RAYON_NUM_THREADS"] = "1"
    return pickle.loads(work.function)


@cache
def node_name() -> str:
    """The name of the node that this task runs on."""
    node = ray.get_runtime_context().get_node_id()
    return next((str(one["NodeName"]) for one in ray.nodes() if one["NodeID"] == node), node)


def answer(reference: ray.ObjectRef) -> Any:
    """The value, or None when it does not come in time."""
    try:
        return reference.future().result(END_WITHIN_SECONDS)
    except (exceptions.RayError, TimeoutError):
        return None
