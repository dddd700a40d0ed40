"""How often what takes long is tried: in `make test-all` in full, in `make test` a third of it."""

from hypothesis import settings

# Of cases that are alike, as many as one in so many are tried.
ONE_IN = 3 if settings.get_current_profile_name() == "ci" else 1


def examples(number: int) -> int:
    """`max_examples` of a property whose examples take long."""
    return max(1, number // ONE_IN)
