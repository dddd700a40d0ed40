"""What a person sees while a program works. In a terminal it is one line at the bottom, with a bar and the
time left, that is painted again five times a second and gone at the end. Elsewhere it is a plain line for
what takes longer than a moment.

Without `begin` or `begin_in_log`, as in worker processes, nothing is shown. The line is on standard error.
While there is one, standard error is a pipe: what a library or a child process writes there is printed above
the line instead of in the middle of it. So is standard output in a program that has no result to print. A
program that runs another one shows in its own line what that one relays: see RELAY_VARIABLE.
"""

import atexit
import faulthandler
import io
import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Self, TypeVar

from trainer.system.status_line import PAINTED_EVERY_SECONDS, Progress, short, status_line

STDOUT, STDERR = 1, 2
# Shorter work is not worth a line that comes and goes, nor a line in a log.
SHOWN_AFTER_SECONDS, SAID_AFTER_SECONDS = 0.3, 1.5
# In the environment of a program of which another one shows the line: the file descriptor of a pipe to that.
RELAY_VARIABLE = "GROUNDWORK_RELAYS_ITS_LINE"
CTRL_C = 3  # columns that stay free, so that the `^C` that a terminal shows begins no line
FIRST_COLUMN, CLEAR = "\r", "\x1b[K"

# For the `extra` of a log record, of which the line says the same: a terminal leaves it out.
SHOWN_MARK = "shown_in_the_line"
IN_LINE = {SHOWN_MARK: True}

Item = TypeVar("Item")

# Of its own, since log.txt has what "trainer" says, and Dagster keeps what "pipeline" says.
log = logging.getLogger("progress")


class Activity:
    """Something that takes a while. It is shown while it is entered, with how far it is, if that is told."""

    def __init__(self, what: str) -> None:
        self.said = ""  # where there is no terminal
        self.seconds_left: float | None = None
        self.is_now(what)

    def is_now(self, what: str) -> None:
        """Makes it something else from now on, of which nothing is done yet."""
        self.what, self._begun = what, time.monotonic()
        self._progress = Progress(None, [], None, self._begun)

    @property
    def is_under_way(self) -> bool:
        """Whether a first share of it is done."""
        return bool(self._progress.share)

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        if _screen.on:
            _screen.push(self)
        return self

    def __exit__(self, *_: object) -> None:
        if _screen.on:
            _screen.pop(self)

    def update(self, share: float | None, facts: Sequence[str], seconds_left: float | None = None) -> None:
        """Tells how far it is now. `share` is what is done, from 0 to 1, where that is known. The most
        important of the `facts` comes first, since a narrow terminal leaves out the last ones. Without
        `seconds_left`, the rest is taken to be as fast as what is done.
        """
        now = time.monotonic()
        if seconds_left is None and share:
            seconds_left = (now - self._begun) * (1 - share) / share
        self._progress = Progress(share, [*facts], seconds_left, now)  # at once: another thread shows it

    def counter(self, of: str) -> Callable[[int], None]:
        """A function to call with the number of items that were done since the last call."""
        done = 0

        def more(number: int) -> None:
            nonlocal done
            done += number
            speed = done / max(time.monotonic() - self._begun, 1e-3)
            self.update(None, [f"{short(done)} {of}", f"{short(speed)} a second"])

        return more

    def relayed(self, stage: str) -> str:
        """This activity as one line for another program, whose `take` reads it."""
        return json.dumps([stage, self.what, *self._progress[:3]])

    def take(self, relayed: str, called: str) -> None:
        """Becomes the activity that the program `called` so has relayed."""
        stage, what, share, facts, self.seconds_left = json.loads(relayed)
        self.what = f"{called} {stage}".rstrip() + f" · {what}"
        self._progress = Progress(share, facts, self.seconds_left, time.monotonic())

    def line(self, columns: int, plain: bool, whole: tuple[float, float] | None = None) -> str:
        return status_line(self.what, self._begun, self._progress, columns, plain, whole)


class _Screen:
    """The activities of this process, of which the last one begun is shown."""

    def __init__(self) -> None:
        self.on = self.interactive = False
        self.say: Callable[[str], None] = log.info
        self.whole: tuple[float, float] | None = None
        self.relay: int | None = None
        self.stages = 0, 0  # begun, and in all
        self._lock = threading.RLock()
        self._activities: list[Activity] = []
        self._since = 0.0  # when the last activity became the last
        self._said = ""
        self._wake: threading.Event | None = None
        # File descriptors: those that are a pipe meanwhile, the terminal and the pipe once they are needed.
        self.taken = [STDERR]
        self.terminal, self._pipe = -1, (-1, -1)
        self._unfinished = b""
        self._is_painted = False

    def push(self, activity: Activity) -> None:
        with self._lock:
            self._activities.append(activity)
            self._since = time.monotonic()
            if len(self._activities) == 1:
                if self.interactive and self.relay is None:
                    self._take()
                self._wake = threading.Event()
                threading.Thread(target=self._tick, args=[self._wake], daemon=True).start()

    def pop(self, activity: Activity) -> None:
        sys.stderr.flush()  # without the lock, which the thread that empties the pipe takes
        with self._lock:
            if activity in self._activities:
                self._activities.remove(activity)
                self._since = time.monotonic()
            if not self._activities and self._wake:
                self._wake.set()
                self._wake = None
                if self.interactive and self.relay is None:
                    self._give_back()

    def rename_first(self, what: str) -> None:
        with self._lock:
            if self._activities:
                self._activities[0].what = what
                self._since = time.monotonic()

    def close(self) -> None:
        """Ends whatever is still going on."""
        for activity in list(self._activities):
            self.pop(activity)

    def paint(self) -> None:
        with self._lock:
            if self._activities and self.relay is not None:
                begun, number = self.stages
                stage = f"{begun} of {number}" if begun else ""
                os.write(self.relay, f"{self._activities[-1].relayed(stage)}\n".encode())
            elif self._activities and (
                self._is_painted or time.monotonic() - self._since >= SHOWN_AFTER_SECONDS
            ):
                encoding = (sys.stderr.encoding or "ascii").lower()
                columns = os.get_terminal_size(self.terminal).columns or 80
                plain = "utf" not in encoding
                line = self._activities[-1].line(max(1, columns - CTRL_C), plain, self.whole)
                self._write(f"{FIRST_COLUMN}{line}{CLEAR}".encode(encoding, "replace"))
                self._is_painted = True

    def _tick(self, ended: threading.Event) -> None:
        if self.interactive:
            # `paint` has the lock and must not wait for an import, in which Ctrl-C may wait for the lock.
            import tqdm.utils  # noqa: F401
        while not ended.wait(PAINTED_EVERY_SECONDS):
            if self.interactive:
                with suppress(OSError):  # the terminal is gone
                    self.paint()
            else:
                self._say()

    def _say(self) -> None:
        with self._lock:
            last = self._activities[-1] if self._activities else None
            if last is None or time.monotonic() - self._since < SAID_AFTER_SECONDS:
                return
            if last.is_under_way or last.what in (self._said, last.said):
                return
            self._said = last.said = last.what
        self.say(last.what)

    def _take(self) -> None:
        if self.terminal < 0:
            self.terminal, self._pipe = os.dup(STDERR), os.pipe()
            os.set_blocking(self._pipe[0], False)
            # To the end of the process: children keep the other end.
            threading.Thread(target=self._pass_on, daemon=True).start()
            if faulthandler.is_enabled():  # in a crash nobody would empty the pipe
                faulthandler.enable(self.terminal)
        sys.stderr.flush()
        for descriptor in self.taken:
            os.dup2(self._pipe[1], descriptor)

    def _give_back(self) -> None:
        for descriptor in self.taken:
            os.dup2(self.terminal, descriptor)
        self._copy(to_the_end=True)
        self._erase()

    def _pass_on(self) -> None:
        arrivals = select.poll()
        arrivals.register(self._pipe[0], select.POLLIN)
        while arrivals.poll():
            self._copy()

    def _copy(self, to_the_end: bool = False) -> None:
        """Writes whole lines from the pipe above the line; `to_the_end`, also what is no whole line."""
        with self._lock, suppress(OSError):
            with suppress(BlockingIOError):
                while data := os.read(self._pipe[0], 1 << 16):
                    self._unfinished += data
            whole, _, rest = self._unfinished.rpartition(b"\n")
            if to_the_end:
                whole, rest = self._unfinished.removesuffix(b"\n"), b""
            self._unfinished = rest
            if whole:
                painted = self._is_painted
                self._erase()
                self._write(whole + b"\n")
                if painted and not to_the_end:
                    self._is_painted = True
                    self.paint()

    def _erase(self) -> None:
        if self._is_painted:
            self._write(f"{FIRST_COLUMN}{CLEAR}".encode())
            self._is_painted = False

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.terminal, data) :]


_screen = _Screen()


def begin(what: str | None = None) -> None:
    """Lets this process show what it does. `what` is shown while it does nothing else; a program gives it if
    it has no result to print on standard output. What standard output cannot encode is escaped.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")
    _screen.on = True
    if relay := os.environ.pop(RELAY_VARIABLE, None):
        _screen.relay = int(relay)
        os.set_blocking(_screen.relay, False)  # perhaps nobody reads any more
    _screen.interactive = bool(relay) or (os.isatty(STDERR) and os.environ.get("TERM") != "dumb")
    atexit.register(_screen.close)
    if what is not None:
        if os.isatty(STDOUT):
            _screen.taken = [STDOUT, STDERR]
        _screen.push(Activity(what))


def end() -> None:
    """Leaves the terminal as it was, although something is still going on."""
    _screen.close()


def doing(what: str) -> Activity:
    """A context for doing `what`. An inner context takes the place of the outer one meanwhile. Nothing may
    be printed on standard output until the context is left: it might be the same terminal.
    """
    return Activity(what)


def otherwise(what: str) -> None:
    """Renames what the line shows while no `doing` is entered."""
    _screen.rename_first(what)


def whole(began: float, ends: float) -> None:
    """Makes the bar of all lines that of something longer, which began and ends at these times of
    `since_boot`.
    """
    _screen.whole = began, ends


def stages(count: Callable[[], int]) -> None:
    """Tells how many stages this process has. `count` is called only if another program shows them."""
    if _screen.relay is not None:
        _screen.stages = 0, count()


def next_stage() -> None:
    begun, number = _screen.stages
    if number:
        _screen.stages = begun + 1, number


def say_through(say: Callable[[str], None]) -> None:
    """Lets a thread call `say` with the name of work that takes a while, where there is no terminal."""
    _screen.say = say


def begin_in_log(say: Callable[[str], None]) -> None:
    """Lets a thread call `say` with the name of work that takes a while, also where there is a terminal."""
    _screen.on, _screen.say = True, say


def stderr() -> int:
    """The file descriptor of standard error, also while that is a pipe to this process."""
    return _screen.terminal if _screen.terminal >= 0 else STDERR


def is_interactive() -> bool:
    """Whether a person sees the line."""
    return _screen.interactive


def is_news(record: logging.LogRecord) -> bool:
    """A filter for the log in the terminal: False for what the line shows."""
    return not (_screen.interactive and hasattr(record, SHOWN_MARK))


def awaited(what: str, items: Iterable[Item]) -> Iterator[Item]:
    """The items. Shows `what` while the next one is awaited."""
    iterator = iter(items)
    while True:
        with Activity(what):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
