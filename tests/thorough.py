"""How often a property is tried: `make test-all` takes all examples, `make test` a third of them."""

from hypothesis import settings


def examples(number: int) -> int:
    """`max_examples` of a property whose examples take long."""
    return max(1, number // 3) if settings.get_current_profile_name() == "ci" else number
