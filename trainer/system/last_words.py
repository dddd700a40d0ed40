"""What is said of a process that ends without a word."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.system import terminal

# The shell reads until the process is gone, however it ends.
SAYS = 'cat; printf "%s\\n" "$0" >&2'


def witness(words: str) -> "subprocess.Popen[bytes]":
    """A process that prints `words` on standard error if this one ends before it is killed."""
    return subprocess.Popen(["sh", "-c", SAYS, words], stdin=subprocess.PIPE, stderr=terminal.stderr())


@contextmanager
def last_words(words: str) -> Iterator[None]:
    """Prints `words` if this process ends before the context does."""
    with witness(words) as process:
        try:
            yield
        finally:
            process.kill()
