"""The base of all stage parameters, and the schema of a document."""

import pyarrow as pa

from trainer.config import Config

MOST = 10**12  # documents, characters or tokens: no corpus needs more, and every kernel can count them


def required(**columns: pa.DataType) -> pa.Schema:
    """A schema of columns by name that hold no null."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


DOCUMENT_SCHEMA = pa.schema(
    [
        *required(id=pa.string(), text=pa.large_string()),
        *(pa.field(name, pa.string()) for name in ("source", "url", "metadata")),
    ]
)


class Params(Config):
    """The parameters of a stage: frozen, since they are part of its fingerprint. An unknown key is an error
    that suggests the nearest known one.
    """
