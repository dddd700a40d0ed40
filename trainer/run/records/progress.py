"""Progress of a run: a line in the log every 10 seconds, and in a terminal a bar instead."""

import logging
import sys
import time

from tqdm import tqdm

LOG_INTERVAL_SECONDS = 10.0

PROGRESS = "trainer.progress"  # what a terminal leaves out of the log, because the bar says it

log = logging.getLogger(PROGRESS)


class Progress:
    """Counts tokens from `tokens` to `max_tokens`."""

    def __init__(self, tokens: int, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._bar = (
            tqdm(total=max_tokens, initial=tokens, unit="tok", unit_scale=True, dynamic_ncols=True)
            if sys.stderr.isatty()
            else None
        )
        self._last_line = time.monotonic()

    def update(self, tokens: int, loss: float, tokens_per_second: float, eta_seconds: float) -> None:
        if self._bar is not None:
            self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            self._bar.update(tokens - self._bar.n)
        if time.monotonic() - self._last_line >= LOG_INTERVAL_SECONDS:
            self._last_line = time.monotonic()
            share = 100 * tokens / self._max_tokens
            log.info(
                "%5.1f%%  %s tokens  loss %.3f  %.0f tokens/s  %.0f s left",
                share,
                f"{tokens:,}",
                loss,
                tokens_per_second,
                eta_seconds,
            )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
