"""Secrets are removed from what is shown or stored."""

import re

# `*.jsonl?` is a glob: a query has a `=`
_QUERY = re.compile(r"(\w://[^\s?]*)\?[^\s=]*=\S*?(?=['\"]?(?:\s|$))")


def without_queries(text: str) -> str:
    """The text with each URL's query replaced by `...`: the query of a signed URL is a secret."""
    return _QUERY.sub(r"\1?...", text)
