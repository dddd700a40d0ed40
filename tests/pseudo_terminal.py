"""A command in a pseudo-terminal: what a person sees there at any moment.

`python -m tests.pseudo_terminal SECONDS COMMAND ...` lists when a command said nothing for longer than that.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

CTRL_C = b"\x03"
ROWS = 50


class Screen:
    """Draws what a program prints, as far as our programs use a terminal: CR, LF and the sequence that clears
    the rest of a line. A line that is too long goes on in the next one.
    """

    def __init__(self, columns: int) -> None:
        self._columns, self._column = columns, 0
        self.lines = [""]

    def print(self, text: str) -> None:
        rest = text
        while rest:
            if rest.startswith("\x1b[K"):
                self.lines[-1], rest = self.lines[-1][: self._column], rest[3:]
                continue
            character, rest = rest[0], rest[1:]
            if character == "\r":
                self._column = 0
            elif character == "\n":
                self.lines.append("")
                self._column = 0
            else:
                if self._column == self._columns:
                    self.lines.append("")
                    self._column = 0
                line = self.lines[-1].ljust(self._column)
                self.lines[-1] = line[: self._column] + character + line[self._column + 1 :]
                self._column += 1


def _takes_terminal(terminal: int) -> None:
    """Ctrl-C then reaches all processes of the command, also if these tests run in the background of a shell,
    which ignores it for all that it starts there.
    """
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class InTerminal:
    """A command that runs in a terminal, and each screen that it drew."""

    def __init__(
        self,
        command: Sequence[str],
        columns: int = 110,
        environment: Mapping[str, str] = os.environ,
        directory: Path | None = None,
        **options: int,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        here: dict[str, int] = {"stdin": theirs, "stdout": theirs, "stderr": theirs} | options
        self.process = subprocess.Popen(
            command,
            env={"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | dict(environment),
            cwd=directory,
            start_new_session=True,
            preexec_fn=lambda: _takes_terminal(theirs),
            **here,
        )
        os.close(theirs)
        self._screen, self._undecoded = Screen(columns), b""
        self.raw = b""
        self.screens: list[list[str]] = []
        self.times: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return [line.rstrip() for line in self._screen.lines]

    def read(self) -> bool:
        """Waits for what it prints next. Returns False once it has ended."""
        data = b""
        with suppress(OSError):
            data = os.read(self._ours, 1 << 16)
        self.raw += data
        self._undecoded += data
        with suppress(UnicodeDecodeError):
            self._screen.print(self._undecoded.decode())
            self._undecoded = b""
        self.screens.append(self.lines)
        self.times.append(time.monotonic())
        return bool(data)

    def until(self, seen: Callable[[list[str]], bool]) -> None:
        """Reads until that is on the screen."""
        while not seen(self.lines):
            assert self.read(), "\n".join(["it ended without that on the screen:", *self.lines])

    def to_the_end(self) -> int:
        """Reads everything, and returns the exit status."""
        while self.read():
            pass
        return self.process.wait()

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def seen(self, *texts: str) -> bool:
        """Whether all of that was in one line at some moment."""
        return any(all(text in line for text in texts) for screen in self.screens for line in screen)


def main(limit: float, command: Sequence[str]) -> None:
    begun = last = time.monotonic()
    with InTerminal(command) as terminal:
        while True:
            before, goes_on = terminal.lines[-2:], terminal.read()
            now = terminal.times[-1]
            if now - last > limit:
                print(
                    f"silent for {now - last:.1f} s from {last - begun:.1f} s on, after {before}", flush=True
                )
            last = now
            if not goes_on:
                break
        print(f"{now - begun:.1f} s, exit status {terminal.process.wait()}: {' '.join(command)}")


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
