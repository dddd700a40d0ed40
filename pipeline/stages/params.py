"""What all stage parameters have in common, and the schema of a document."""

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

DOCUMENT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("url", pa.string()),
        pa.field("metadata", pa.string()),
    ]
)


class Params(BaseModel):
    """Frozen, so that a stage's parameters can be part of its fingerprint; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
