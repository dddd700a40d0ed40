"""Personal data and secrets replaced by typed placeholders, with a table of what was where."""

from pipeline.stages.pii.kinds import SPANS_SCHEMA, PiiKind, PiiParams
from pipeline.stages.pii.scrub import scrub
from pipeline.stages.pii.url_and_metadata import scrub_fields

VERSION = "pii-11"
