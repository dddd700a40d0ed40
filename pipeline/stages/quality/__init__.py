"""Quality heuristics: `measure` computes every signal once, `judge` applies thresholds to the signals."""

from pipeline.stages.quality.profiles import PROFILES
from pipeline.stages.quality.rules import LANGUAGE, RULES, VERDICTS_SCHEMA, QualityParams, judge
from pipeline.stages.quality.signals import (
    SIGNALS_SCHEMA,
    VERSION,
    DocumentTooLongError,
    measure,
    with_plain_newlines,
)
