"""`python -m pipeline`."""

import gc
import logging
import signal
import sys

from pipeline.cli import main
from pipeline.steps import compiling
from trainer.system import terminal


def _show_what_is_done() -> None:
    """Shows progress on standard error, so that the result on standard output can be piped."""
    shown = logging.StreamHandler(sys.stderr)
    shown.addFilter(terminal.is_news)
    logging.basicConfig(format="%(message)s", handlers=[shown])
    for name in ("pipeline", terminal.log.name):
        logging.getLogger(name).setLevel(logging.INFO)
    terminal.begin()
    compiling.announce()


if __name__ == "__main__":
    _show_what_is_done()
    # Exits as on Ctrl-C, so that incomplete output is removed on the way out.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    status = main()
    # At its end Python looks for garbage in all that was imported, up to half a second in vain.
    gc.freeze()
    sys.exit(status)
