"""How often what takes long is tried: in `make test-all` in full, in `make test` a third of it."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")


def examples(number: int) -> int:
    """`max_examples` of a property whose examples take long."""
    return max(1, number // 3) if settings.get_current_profile_name() == "ci" else number


def some(cases: Sequence[Case]) -> Sequence[Case]:
    """Of the many alike that a test goes through, each third in `make test`."""
    return cases[:: 3 if settings.get_current_profile_name() == "ci" else 1]
