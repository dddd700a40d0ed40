"""Messages to Dagster, when it launched this process. Training never depends on anyone listening."""

import contextlib
import logging
import os
import time
from types import TracebackType
from typing import Any, Self

METRICS_INTERVAL_SECONDS = 5.0

log = logging.getLogger("trainer")


class Reporter:
    """Sends messages `{"kind": start | metrics | evaluation | sample | checkpoint | error | end, ...}`
    through Dagster Pipes.

    Silent without DAGSTER_PIPES_CONTEXT and on all processes but the main one. When the other side is gone,
    the rest of the run is silent too.
    """

    def __init__(self, is_main: bool) -> None:
        self._context: Any = None
        self._last_metrics = -METRICS_INTERVAL_SECONDS
        if is_main and os.environ.get("DAGSTER_PIPES_CONTEXT"):
            from dagster_pipes import open_dagster_pipes

            self._context = open_dagster_pipes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context is not None:
            with contextlib.suppress(OSError):
                self._context.close()

    def send(self, kind: str, **message: Any) -> None:
        """`message` must be JSON. Metrics are dropped when the last ones are less than 5 seconds old."""
        if self._context is None:
            return
        if kind == "metrics":
            now = time.monotonic()
            if now - self._last_metrics < METRICS_INTERVAL_SECONDS:
                return
            self._last_metrics = now
        try:
            self._context.report_custom_message({"kind": kind, **message})
        except OSError as error:
            log.warning("Dagster no longer listens (%s); training goes on", error)
            self._context = None
