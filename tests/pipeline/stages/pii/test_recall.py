"""How many of thousands of generated values are found: all usual forms, and nearly all that copying, encoding
and wrapping make of them.
"""

from collections import defaultdict

import pytest

from pipeline.stages.pii import PiiParams, scrub
from tests.pipeline.stages.pii.generator import Value, values
from tests.rows import documents

USUAL = dict.fromkeys(("credit_card", "email", "iban", "ip", "secret", "ssn"), 0.995) | {"phone": 0.985}
ODD = dict.fromkeys(USUAL, 0.95)


def recall(found: list[Value], usual: bool) -> dict[str, float]:
    """The share of whole values that spans cover, by kind; fails where a second pass finds anything."""
    chosen = [value for value in found if value.usual == usual]
    once, spans = scrub(documents(*(value.text for value in chosen)), PiiParams())
    assert scrub(once, PiiParams())[1].num_rows == 0
    covered = defaultdict(set)
    for span in spans.to_pylist():
        covered[int(span["id"])] |= set(range(span["start"], span["end"]))
    hits = defaultdict(list)
    for row, value in enumerate(chosen):
        hits[value.kind].append(covered[row].issuperset(range(value.start, value.end)))
    return {kind: sum(found) / len(found) for kind, found in hits.items()}


@pytest.mark.parametrize(("usual", "floors"), [(True, USUAL), (False, ODD)], ids=["usual", "odd"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_values_in_all_forms_and_surroundings_are_found(
    usual: bool, floors: dict[str, float], seed: int
) -> None:
    shares = recall(list(values(50 if seed == 1 else 300, seed)), usual)
    assert {kind: share for kind, share in shares.items() if share < floors[kind]} == {}
    assert shares.keys() == floors.keys()
