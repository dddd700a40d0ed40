"""Errors that stop a source from being read at all."""

from pipeline.sources.signed_urls import without_queries
from pipeline.store.errors import PipelineError


class SourceError(PipelineError):
    """A source that cannot be listed or read. The message says what to change; it shows no URL query."""

    def __init__(self, message: str) -> None:
        super().__init__(without_queries(message))


class OfflineError(SourceError):
    """A source that cannot be listed because this machine is set to work offline."""
