"""Personal data and secrets replaced by typed placeholders, with a table of what was where."""

from pipeline.stages.pii.fields import scrub_fields
from pipeline.stages.pii.kinds import SPANS_SCHEMA, PiiKind, PiiParams
from pipeline.stages.pii.scrub import scrub

VERSION = "pii-3"

__all__ = ["SPANS_SCHEMA", "VERSION", "PiiKind", "PiiParams", "scrub", "scrub_fields"]
