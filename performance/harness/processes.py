"""Measures the same work in one process and in several at once: the speed-up and the memory of each."""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier

from harness.sidebyside import REPEATS, Report, peak_megabytes

# (share, shares) -> the work on that share, ready to start
Prepare = Callable[[int, int], Callable[[], object]]


def scaling(prepare: Prepare, megabytes: float, counts: tuple[int, ...] = (1, 2)) -> Report:
    """MB/s with each number of processes, medians of REPEATS, by the clock and by the processor time of the
    slowest process.

    The clock counts what else the machine does.
    """
    measured = {count: _run(prepare, count) for count in counts}
    first = measured[counts[0]]
    return {
        str(count): {
            "mb_per_s_clock": round(megabytes / clock, 1),
            "mb_per_s_processor_time": round(megabytes / processor, 1),
            "times_one_clock": round(first[0] / clock, 2),
            "times_one_processor_time": round(first[1] / processor, 2),
        }
        for count, (clock, processor) in measured.items()
    }


def peak_mb(work: Callable[..., object], *arguments: object) -> int:
    """The most memory that a process of its own holds while it does the work."""
    context = multiprocessing.get_context("spawn")
    peaks = context.Queue()
    process = context.Process(target=_peak, args=(work, arguments, peaks))
    process.start()
    peak = peaks.get()
    process.join()
    return peak


def _peak(
    work: Callable[..., object], arguments: tuple[object, ...], peaks: "multiprocessing.Queue[int]"
) -> None:
    work(*arguments)
    peaks.put(round(peak_megabytes()))


def _run(prepare: Prepare, count: int) -> tuple[float, float]:
    """Median seconds by the clock, and the slowest process's median processor seconds."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(count + 1), context.Queue()
    workers = [
        context.Process(target=_work, args=(prepare, share, count, barrier, results))
        for share in range(count)
    ]
    for worker in workers:
        worker.start()
    clock = []
    for _ in range(REPEATS):
        barrier.wait()
        started = time.perf_counter()
        barrier.wait()
        clock.append(time.perf_counter() - started)
    slowest = max(results.get() for _ in workers)
    for worker in workers:
        worker.join()
    return statistics.median(clock), slowest


def _work(
    prepare: Prepare, share: int, shares: int, barrier: Barrier, results: "multiprocessing.Queue[float]"
) -> None:
    work = prepare(share, shares)
    work()
    seconds = []
    for _ in range(REPEATS):
        barrier.wait()
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
        barrier.wait()
    results.put(statistics.median(seconds))
