"""Reads what a trainer writes for Dagster Pipes. What becomes of it is in `trainer_process.py`."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import dagster as dg
from dagster_pipes import PipesDefaultMessageWriter, PipesParams

LOOK_SECONDS = 0.05


class TrainerMessages(dg.PipesMessageReader):
    """The messages in a file that another process appends to.

    dg.PipesFileMessageReader takes the beginning of a line for the line, if it looks while the line is being
    written. It then reads no further, and the run fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def read_messages(self, handler: dg.PipesMessageHandler) -> Iterator[PipesParams]:
        """Yields what tells the other process where to write."""
        self._path.write_bytes(b"")
        closed = Event()
        thread = Thread(target=self._read, args=(handler, closed.is_set), daemon=True)
        thread.start()
        try:
            yield {PipesDefaultMessageWriter.FILE_PATH_KEY: str(self._path)}
        finally:
            closed.set()
            thread.join()
            self._path.unlink(missing_ok=True)

    def _read(self, handler: dg.PipesMessageHandler, is_closed: Callable[[], bool]) -> None:
        try:
            for line in whole_lines(self._path, is_closed):
                handler.handle_message(json.loads(line))
        except Exception:
            handler.report_pipes_framework_exception(f"the messages in {self._path}", sys.exc_info())
            raise

    def no_messages_debug_text(self) -> str:
        return f"Attempted to read messages from {self._path}."


def whole_lines(path: Path, is_closed: Callable[[], bool]) -> Iterator[bytes]:
    """The lines of a growing file, each once it has ended. Ends once `is_closed` and no line is left; a line
    without an end, of a process that was killed, is left out.
    """
    begun = b""
    with path.open("rb") as file:
        while True:
            last_look = is_closed()  # asked before the file is read, so that nothing comes in between
            begun += file.read()
            *lines, begun = begun.split(b"\n")
            yield from lines
            if last_look:
                return
            if not lines:
                time.sleep(LOOK_SECONDS)
