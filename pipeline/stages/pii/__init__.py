"""Personal data and secrets replaced by typed placeholders, with a table of what was where.

The matchers use the same names. `data` has the bytes of one document, and `hi` is their number. A matcher is
called with `p`, where a value may begin, or with the place of the byte that triggered it. It returns where
the value ends, or where it starts and ends; 0 and (0, 0) say that there is none.
"""

from pipeline.stages.pii.kinds import SPANS_SCHEMA, PiiKind, PiiParams
from pipeline.stages.pii.scrub import scrub
from pipeline.stages.pii.url_and_metadata import scrub_fields

VERSION = "pii-13"
