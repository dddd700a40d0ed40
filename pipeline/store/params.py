"""What all stage parameters have in common, and the schema of a document."""

import pyarrow as pa

from trainer.config import Config

DOCUMENT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("url", pa.string()),
        pa.field("metadata", pa.string()),
    ]
)


class Params(Config):
    """A stage's parameters: frozen, since they are part of its fingerprint; an unknown key is an error that
    names the nearest one.
    """
