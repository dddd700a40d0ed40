"""Reads or makes the next items while the caller works on this one."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(items: Iterator[Item]) -> Generator[Item]:
    """Yields the same items; a thread reads one item ahead of the caller."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def in_threads(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Generator[Result]:
    """Yields `function(item)` of each item, in their order, made in so many threads. As many results wait."""
    with ThreadPoolExecutor(threads) as pool:
        coming: deque[Future[Result]] = deque()
        for item in items:
            coming.append(pool.submit(function, item))
            if len(coming) > threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
