"""`python -m pipeline`."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from trainer.system import ctrl_c, streams


def _show_what_is_done() -> None:
    """Shows progress on standard error, so that the result on standard output can be piped."""
    from pipeline.steps import compile_ahead
    from trainer.system import terminal

    shown = logging.StreamHandler(sys.stderr)
    shown.addFilter(terminal.is_news)
    logging.basicConfig(format="%(message)s", handlers=[shown])
    for name in ("pipeline", terminal.log.name):
        logging.getLogger(name).setLevel(logging.INFO)
    terminal.begin()
    compile_ahead.announce()


def run(arguments: Sequence[str]) -> NoReturn:
    """Runs a command and exits with its status. Ctrl-C while modules are loaded ends the program."""
    ctrl_c.ends_the_program()
    streams.keep()
    from pipeline.cli import main
    from trainer.system.signals import heeded

    _show_what_is_done()
    # Exits as on Ctrl-C, so that incomplete output is removed on the way out.
    for number in heeded([signal.SIGTERM, signal.SIGHUP]):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    status = main(arguments)
    # At its end Python looks for garbage in all that was imported, up to half a second in vain.
    gc.freeze()
    sys.exit(status)


def groundwork() -> NoReturn:
    """The program `groundwork`: a command of `python -m pipeline`, or `trainer` and one of `python -m
    trainer`, or `start` with the folder that is named.
    """
    ctrl_c.ends_the_program()
    from pipeline.cli import COMMANDS
    from pipeline.cli.recipe_option import command_first

    first, *rest = command_first(sys.argv[1:]) or ["--help"]
    if first == "trainer":
        os.execv(sys.executable, [sys.executable, "-m", "trainer", *rest])
    run([first, *rest] if first in COMMANDS or first in ("-h", "--help") else ["start", first, *rest])


if __name__ == "__main__":
    run(sys.argv[1:] or ["--help"])
