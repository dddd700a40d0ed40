"""Progress of long work in the log."""

import logging
import time

from pipeline.store.engines.local import REPORT_EVERY_SECONDS

log = logging.getLogger(__name__)


class Announced:
    """Logs every few seconds how much is done, and how long the rest takes at the speed since the last
    line. `what` has a place for each of the two numbers.
    """

    def __init__(self, what: str):
        self._what = what
        self._at, self._done = time.monotonic(), 0.0

    def reach(self, done: float, total: float) -> None:
        now = time.monotonic()
        if now - self._at >= REPORT_EVERY_SECONDS and self._done < done < total:
            left = (now - self._at) / (done - self._done) * (total - done)
            log.info(f"{self._what}, about %.0f s left", done, total, left)
            self._at, self._done = now, done
