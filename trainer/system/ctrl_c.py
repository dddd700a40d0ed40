"""What Ctrl-C does while a program loads, works and ends. Imports next to nothing, to be there at once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


def ends_the_program() -> None:
    """From now on Ctrl-C ends the program without a stack trace, as it ends one that is not Python."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:  # else somebody ignores or handles it
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raises() -> AbstractContextManager[None]:
    """While entered, Ctrl-C raises KeyboardInterrupt."""
    return calls(signal.default_int_handler)


@contextmanager
def calls(handler: Callable[..., Any]) -> Iterator[None]:
    """While entered, Ctrl-C calls `handler`, unless it is ignored, as in the background of a script."""
    before = signal.getsignal(signal.SIGINT)
    if before != signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
