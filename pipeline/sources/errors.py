"""Errors that stop a source from being read at all. What they say holds no secret."""

import re

from pipeline.store.errors import PipelineError

# `*.jsonl?` is a glob: a query has a `=`
_QUERY = re.compile(r"(\w://[^\s?]*)\?[^\s=]*=\S*?(?=['\"]?(?:\s|$))")


def without_queries(text: str) -> str:
    """The text with each URL's query replaced by `...`: the query of a signed URL is a secret."""
    return _QUERY.sub(r"\1?...", text)


class SourceError(PipelineError):
    """A source that cannot be listed or read. The message says what to change; it shows no URL query."""

    def __init__(self, message: str) -> None:
        super().__init__(without_queries(message))


class OfflineError(SourceError):
    """A source that cannot be listed because this machine is set to work offline."""
