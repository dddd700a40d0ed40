"""Which documents a tokenizer is trained on, and which are encoded a second time."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pipeline.stages.held_out import share_of

# of an even split: the least that a small corpus gives to the sample, if it has as much
LEAST_SHARE = 0.1
CHECKED_SHARE = 0.01
CHECKED_AT_FIRST = 16_384
CHECKED_ONE_IN = 1000  # bytes; the second encoding takes about fifty times as long


def budgets(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """The bytes that each corpus gives to `total`: in proportion to its size, at least a tenth of an even
    split or all that it has.
    """
    if sum(sizes.values()) <= total:
        return dict(sizes)
    least = {name: min(size, int(LEAST_SHARE * total / len(sizes))) for name, size in sizes.items()}
    rest = {name: size - least[name] for name, size in sizes.items()}
    share = (total - sum(least.values())) / sum(rest.values())
    return {name: least[name] + int(share * rest[name]) for name in sizes}


class Checked:
    """Chooses a part's documents to encode again: the first, and 1 in 100 within a budget of bytes."""

    def __init__(self) -> None:
        self._allowed = float(CHECKED_AT_FIRST)
        self._first = True

    def choose(self, ids: pa.Array, sizes: np.ndarray) -> np.ndarray:
        """Rows of the next documents to check. A document may exceed the budget; the next then wait."""
        wanted = share_of(ids, "encoder-check") < CHECKED_SHARE
        if self._first and len(wanted):
            wanted[0] = True
            self._first = False
        before = self._allowed + np.cumsum(sizes) / CHECKED_ONE_IN
        chosen, spent = [], 0
        for row in np.flatnonzero(wanted):
            if spent < before[row]:
                chosen.append(row)
                spent += min(int(sizes[row]), CHECKED_AT_FIRST)
        self._allowed = (before[-1] if len(before) else self._allowed) - spent
        return np.array(chosen, np.int64)
