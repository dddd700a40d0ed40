"""What a run says in the terminal: one line for each thing that a person wants to know. The UI keeps every event."""

import logging
import sys

import dagster as dg


@dg.logger({}, "One short line per message, on standard error.")
def console(_: dg.InitLoggerContext) -> logging.Logger:
    """Messages of the stages, and of Dagster only what went wrong."""
    logger = logging.Logger("console", logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Short())
    logger.addHandler(handler)
    return logger


class _Short(logging.Formatter):
    """`12:00:31  token_shards/docs  message`. A failed step is its error's message, with the stack only where the mistake is ours."""

    def format(self, record: logging.LogRecord) -> str:
        facts = getattr(record, "dagster_meta", {})
        step = (facts.get("step_key") or facts.get("job_name") or "").replace("__", "/")
        return f"{self.formatTime(record, '%H:%M:%S')}  {step:<30}  {_message(record, facts.get('dagster_event'), facts.get('orig_message'))}"


def _message(record: logging.LogRecord, event: dg.DagsterEvent | None, original: str | None) -> str:
    if event is not None and event.is_step_failure:
        failure = event.step_failure_data
        if failure.user_failure_data and failure.user_failure_data.description:
            return f"FAILED: {failure.user_failure_data.description}"
        return f"FAILED: {failure.error.to_string() if failure.error else original}"
    return original or record.getMessage()
