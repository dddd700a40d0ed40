"""Which other sizes are tried in the time that little text leaves, and how well they did."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pipeline.recipe.loading import load_recipe
from pipeline.start.sizes import SIZES, Size
from pipeline.steps.model import evaluate
from pipeline.steps.recipe_versions import store_of
from pipeline.store import keys
from pipeline.store.errors import PipelineError

# How far from the best size so far others are, in the order in which they are tried. Neighbors differ least.
AWAY = (-2, 2, 1, -1)


def others(best: Size) -> Iterator[Size]:
    places = (SIZES.index(best) + steps for steps in AWAY)
    yield from (SIZES[place] for place in places if 0 <= place < len(SIZES))


def held_out_score(recipe: Path) -> float | None:
    """Bits per byte of all held-out text, by the model that the job `pretrain` of a recipe has made. None if
    that is gone, or is no longer what the recipe names.
    """
    store = store_of(load_recipe(recipe), records=False)
    with suppress(PipelineError):
        return float(evaluate.read(store.current(keys.EVALUATION))["bits_per_byte"])
    return None


def ranked(tried: Mapping[Size, float]) -> str:
    """The sizes and their bits per byte in words, the best first."""
    scores = sorted(tried.items(), key=lambda one: one[1])
    return ", ".join(f"{score:.3f} with {size.words}" for size, score in scores)
