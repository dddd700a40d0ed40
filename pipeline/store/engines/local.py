"""Maps a function over parts: in this process when the work is small, else also in local worker processes.
Both give the same bytes, as do the nodes of a cluster (`ray.py`).
"""

import logging
import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import Field, model_validator

from pipeline.store import without_pandas
from pipeline.store.errors import PipelineError
from pipeline.store.params import Params, form
from trainer.system import terminal

Task = TypeVar("Task")
Result = TypeVar("Result")

log = logging.getLogger(__name__)

# Bytes of input. A worker takes about a second to start; the kernels process 50 MB/s and more.
PROCESSES_PAY_ABOVE = 32_000_000
REPORT_EVERY_SECONDS = 5.0
TASK_MEMORY = 1_000_000_000


class WorkerLostError(PipelineError):
    """A worker process ended before its task did."""


LABEL = form(
    r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
    "at most 63 letters, digits, `_`, `.` and `-`, with a letter or digit at both ends, such as `cpu-2`",
)
Label = Annotated[str, Field(pattern=LABEL)]
RayAddress = Annotated[
    str,
    Field(
        pattern=form(r"^(auto|[^\s:/]+:\d+)$", "`auto`, or a host and its port, such as `10.0.0.1:6379`"),
        description="For kind `ray`: host and port of the cluster's head node, such as `10.0.0.1:6379`. "
        "`auto` takes RAY_ADDRESS, else the cluster of this machine.",
    ),
]


def check_ray(params: Params, kind: str, *settings: str) -> None:
    """Raises ValueError for one of the settings that only a Ray cluster has, without one."""
    for name in settings if kind != "ray" else ():
        if getattr(params, name) != type(params).model_fields[name].default:
            raise ValueError(f"{name} needs kind: ray; set the kind, or leave out {name}")


class EngineParams(Params):
    """Which processes prepare the data. The results do not depend on it."""

    kind: Literal["local", "ray"] = "local"
    """`local` starts processes on this machine, `ray` runs tasks on a Ray cluster. Its nodes need the store,
    the text and this environment under the same paths: docs/cluster.md.
    """
    workers: int | None = Field(None, ge=1, le=1024)
    """How many processes work on parts, the process of the run included. When not set, one for each core that
    the run may use. Lower it when memory runs out. For kind `ray`: how many tasks run at a time at most. When
    not set, as many as the cluster has CPUs for.
    """
    address: RayAddress = "auto"
    task_memory: int = Field(TASK_MEMORY, ge=100_000_000, le=10_000_000_000_000)
    """For kind `ray`: bytes of memory that Ray sets aside for each task. Raise it when memory runs out on a
    node. A worker took 0.63 GB with the default `raw.part_bytes`.
    """

    task_seconds_per_mb: float = Field(30.0, gt=0, le=1e6)
    """For kind `ray`: a task may take so many seconds for each MB that it reads, and ten minutes besides.
    Then its worker is ended, and it runs again. Raise it for slow code of your own.
    """
    resources: dict[str, Annotated[float, Field(gt=0)]] = Field({})
    """For kind `ray`: what a task asks Ray for besides memory, such as `{CPU: 2, disk: 1}`. One CPU when that
    is not named.
    """
    labels: dict[str, Label] = Field({})
    """For kind `ray`: labels of the nodes that run tasks, such as `{pool: cpu}`."""

    @model_validator(mode="after")
    def _has_no_cluster_unless_ray(self) -> Self:
        of_tasks = ("task_memory", "task_seconds_per_mb", "resources", "labels")
        check_ray(self, self.kind, "address", *of_tasks)
        return self


class LocalEngine:
    """This process and worker processes beside it, `workers` in all. The others start when the work is large
    enough, stay until `close`, and end with this process, even when it is killed.
    """

    apart = False  # whether tasks may run on other machines

    def __init__(self, workers: int | None = None, processes_pay_above: int = PROCESSES_PAY_ABOVE):
        self.workers = workers or len(os.sched_getaffinity(0))
        self.processes_pay_above = processes_pay_above
        self._pool: ProcessPoolExecutor | None = None
        self._processes = 0

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        input_bytes: int,
        what: str,
        own: Sequence[str] = (),
    ) -> Iterator[Result]:
        """Yields `function(task)` for each task, in order. `function` must be importable, not a closure.
        `input_bytes` decides whether processes are worth starting; `what` names the work in the log. `own`
        names the user's code that `function` calls, which may end its process and never runs in this one.

        Raises the first error of a task unchanged, and WorkerLostError when a worker process ends, as when
        the kernel kills it for its memory.
        """
        # Processes that run already pay for any work.
        small = self._pool is None and input_bytes < self.processes_pay_above
        if not own and (self.workers == 1 or len(tasks) < 2 or small):
            results: Iterator[Result] = map(function, tasks)
        else:
            results = self._in_processes(function, tasks, here=not own)
        try:
            with TimeLeft(f"{what}: %d of %d parts") as progress:
                progress.reach(0, len(tasks))
                for done, result in enumerate(results, 1):
                    progress.reach(done, len(tasks))
                    yield result
        except BrokenProcessPool as error:
            workers = list(self._pool._processes.values()) if self._pool else []
            self.close()
            statuses = [worker.exitcode for worker in workers if worker.exitcode is not None]
            raise WorkerLostError(f"{what}: {_how_a_worker_ended(statuses, own)}") from error

    def _in_processes(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, here: bool
    ) -> Iterator[Result]:
        """`here`: also in this process."""
        pool = self._pool_of(self.workers - here)
        sharing = _Sharing(pool, function if here else partial(_with_pandas, function), tasks, here)
        with _without_program():
            for _ in range(min(self.workers, len(tasks)) - here):
                sharing.feed()
        finished: dict[int, Result] = {}
        try:
            for following in range(len(tasks)):
                while following not in finished:
                    index, result = sharing.next()
                    finished[index] = result
                yield finished.pop(following)
        finally:
            sharing.stop()

    def _pool_of(self, processes: int) -> ProcessPoolExecutor:
        """A pool of at least so many processes. It is no larger than needed, since it would start all of
        them: a task that is submitted the moment another one ends finds no idle process yet.
        """
        if self._pool is None or self._processes < processes:
            self.close()
            self._processes = processes
            # Forking after compiled kernels or tokenizers have run can hang.
            self._pool = ProcessPoolExecutor(
                processes, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
            )
        return self._pool

    def close(self) -> None:
        """Ends the worker processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


Engine = LocalEngine  # what a step is given: this one, or a RayEngine, which derives from it


def _how_a_worker_ended(statuses: Sequence[int], own: Sequence[str]) -> str:
    """What became of a worker, and what to do. The pool then sends SIGTERM to the others."""
    status = next((one for one in statuses if one not in (0, -signal.SIGTERM)), min(statuses, default=0))
    killed = (
        "was killed, most likely because memory ran out: lower engine.workers or raw.part_bytes and run again"
    )
    if not own:
        return f"a worker process {killed}"
    process = f"the process that ran {' and '.join(own)}"
    if status == -signal.SIGKILL:
        return f"{process} {killed}, or let the code keep less in memory"
    if status < 0:
        ended = f"was ended by {signal.Signals(-status).name}: PYTHONFAULTHANDLER=1 in the environment "
        ended += "shows the line. Correct"
    else:
        ended = f"ended with status {status}, as `os._exit` ends one: correct"
    return f"{process} {ended} the code and run again, which goes on after the last finished part"


class _Sharing(Generic[Task, Result]):
    """Tasks that the workers of a pool and, if it is to work `here`, this process take one by one, each when
    it is done with the last.

    A worker in place of this process would have to import everything again.
    """

    def __init__(
        self, pool: ProcessPoolExecutor, function: Callable[[Task], Result], tasks: Sequence[Task], here: bool
    ):
        self._pool, self._here = pool, here
        self._function = function
        self._waiting: Iterator[tuple[int, Task]] = iter(enumerate(tasks))
        self._taking = threading.Lock()
        self._ended: SimpleQueue[tuple[int, Future[Result]]] = SimpleQueue()

    def feed(self) -> None:
        """Gives a worker a task, and when it has ended the next one, in a thread of the pool."""
        item = self._take()
        if item is None:
            return
        index, task = item

        def ended(future: Future[Result]) -> None:
            if not future.cancelled() and future.exception() is None:
                self.feed()
            self._ended.put((index, future))

        self._pool.submit(self._function, task).add_done_callback(ended)

    def next(self) -> tuple[int, Result]:
        """The number and result of a task that ended, in this process if no worker has ended one."""
        item = self._take() if self._here and self._ended.empty() else None
        if item is not None:
            return item[0], self._function(item[1])
        index, future = self._ended.get()
        return index, future.result()

    def stop(self) -> None:
        """No further task begins."""
        with self._taking:
            self._waiting = iter(())

    def _take(self) -> tuple[int, Task] | None:
        with self._taking:
            return next(self._waiting, None)


@contextmanager
def _without_program() -> Iterator[None]:
    """Processes that start meanwhile do not run the command that was typed, as they would do by default. It
    holds no task, and `dagster` takes a second of each worker. Scripts of a user's own are run.
    """
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None)
    if script is None or Path(script).parent != Path(sys.executable).parent:
        yield
        return
    main.__file__ = None
    try:
        yield
    finally:
        main.__file__ = script


def _begin_worker() -> None:
    with suppress(OSError):  # out of memory, Linux ends a worker rather than the run
        Path("/proc/self/oom_score_adj").write_text("500")
    without_pandas.leave_out()
    # Python would wait for the threads that the user's code has begun, and from 3.12 on before it finalizes.
    threading._register_atexit(_end_worker)  # type: ignore[attr-defined]
    _end_with_parent()


def _with_pandas(function: Callable[[Task], Result], task: Task) -> Result:
    """For the user's code, which may use it."""
    without_pandas.bring_in()
    return function(task)


def _end_worker() -> None:
    multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    for printed in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed
            printed.flush()
    os._exit(0)


def _end_with_parent() -> None:
    """Makes a worker leave Ctrl-C to its parent, and exit when the parent dies, or the pool would wait for
    ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which the parent may ignore just now
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class TimeLeft:
    """Shows how much is done and how long the rest takes: while it is entered as a bar, in a terminal; in the
    log every few seconds, at the speed since the last line. `what` has a place for each of the two numbers.
    """

    def __init__(self, what: str):
        self._what = what
        self._bar = terminal.doing(f"making {what.partition(':')[0]}")
        self._at, self._done = time.monotonic(), 0.0

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()

    def reach(self, done: float, total: float, besides: str = "") -> None:
        numbers = self._what.partition(": ")[2] % (done, total)
        self._bar.update(done / total if total else None, [f"{numbers}{besides}"])
        now = time.monotonic()
        if now - self._at >= REPORT_EVERY_SECONDS and self._done < done < total:
            left = (now - self._at) / (done - self._done) * (total - done)
            log.info(f"{self._what}, about %.0f s left%s", done, total, left, besides, extra=terminal.IN_LINE)
            self._at, self._done = now, done
