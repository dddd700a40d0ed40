"""Lines cut out of texts, and kept: by what they say, or because many documents have them."""

import numpy as np
import pyarrow as pa

from pipeline.stages.edits.lines import CUTS_SCHEMA, Lines, cut, restored
from pipeline.stages.edits.params import EditParams, EditRule, Repeated
from pipeline.stages.edits.repeats import COUNTED, REPEATED, columns, counted, cut_units, units
from pipeline.stages.edits.rules import LINE_RULES, PIECES, with_pieces_apart

VERSION = "edits-4"
NOTHING = np.zeros(0, REPEATED)
REPEATED_RULE = "repeated_{unit}"
NAMES = (*EditRule, *(REPEATED_RULE.format(unit=unit) for unit in ("line", "paragraph")))  # of cuts


def edit(
    documents: pa.RecordBatch, params: EditParams, repeated: np.ndarray = NOTHING, seen: np.ndarray = NOTHING
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The documents without what the rules cut, and what was cut, as CUTS_SCHEMA. A line belongs to the first
    rule that cuts it. `repeated`: what `params.repeated` cuts (REPEATED); `seen`, of the same length: whether
    it has occurred in an earlier batch of the part, which is updated.
    """
    lines = Lines.of(documents.column("text"))
    names = [*params.rules, *(REPEATED_RULE.format(unit=one.unit) for one in params.repeated)]
    masks = [LINE_RULES[rule](lines) for rule in params.rules if rule in LINE_RULES]
    masks += [
        cut_units(units(documents, lines, one, number), repeated, seen, len(lines.rows))
        for number, one in enumerate(params.repeated)
    ]
    places = [place for place, name in enumerate(names) if name not in PIECES]
    rules = np.zeros(len(lines.rows), np.uint8)
    for place, mask in zip(places, masks, strict=True):
        rules[mask & (rules == 0)] = place + 1
    if not PIECES.keys().isdisjoint(params.rules):
        apart, pieces = with_pieces_apart(lines, params.rules)
        rules = rules[np.searchsorted(lines.starts, apart.starts[:-1], side="right") - 1]
        rules, lines = np.where(rules == 0, pieces, rules), apart
    return cut(documents, lines, rules, names)
