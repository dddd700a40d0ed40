"""Reads what a trainer writes for Dagster Pipes. What becomes of it is in `trainer_process.py`."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import dagster as dg

LOOK_SECONDS = 0.05


class TrainerMessages(dg.PipesFileMessageReader):
    """The messages in a file that another process appends to.

    Dagster's reader takes the beginning of a line for the line, if it looks while the line is being written.
    It then reads no further, and the run fails.
    """

    def _reader_thread(self, handler: dg.PipesMessageHandler, is_resource_complete: Event) -> None:
        try:
            for line in whole_lines(Path(self._path), is_resource_complete.is_set):
                handler.handle_message(json.loads(line))
        except Exception:
            handler.report_pipes_framework_exception(f"the messages in {self._path}", sys.exc_info())
            raise


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
