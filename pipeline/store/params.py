"""The base of all stage parameters, and the schema of a document."""

import pyarrow as pa

from trainer.config import Config

MOST = 10**12  # documents, characters or tokens: no corpus needs more, and every kernel can count them

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
    """The parameters of a stage: frozen, since they are part of its fingerprint. An unknown key is an error
    that suggests the nearest known one.
    """
