"""`python -m pipeline.steps.training.remote_agent`: what `hosts` starts on a host by ssh. It runs a command
for as long as somebody holds the line.

Standard input begins with a line of JSON (`Order`) and goes on with any bytes. When it ends or falls silent,
whatever happened to ssh or to the machine at the other end, the command is stopped as `run_group` stops one.
The exit status is the command's, 128 + its number for a signal.
"""

import json
import os
import select
import sys
import time
from dataclasses import dataclass
from typing import Self

from pipeline.steps.training.process_group import run_group
from trainer.system import launch

SILENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Order:
    """What to run. The variables go in by this way because other people on the machine can read command
    lines, and some are secrets.
    """

    command: list[str]
    variables: dict[str, str]
    threads: int | None
    processes: int

    @classmethod
    def read(cls) -> Self:
        with open(0, "rb", buffering=0, closefd=False) as line:
            return cls(**json.loads(line.readline()))

    def environment(self) -> dict[str, str]:
        return {**os.environ, **launch.environment(self.threads, self.processes), **self.variables}


class Line:
    """Standard input, after the order."""

    def __init__(self) -> None:
        self._heard = time.monotonic()

    def is_held(self) -> bool:
        while select.select([0], [], [], 0)[0]:
            if not os.read(0, 4096):
                return False
            self._heard = time.monotonic()
        return time.monotonic() - self._heard < SILENCE_SECONDS


def main() -> int:
    order = Order.read()
    status = run_group(order.command, order.environment(), Line().is_held)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
