"""The length of a training in a recipe: `training.max_tokens`, or the most tokens of its `duration`."""

from typing import Any


def with_length(recipe: Any) -> Any:
    """The settings of a recipe in which `training.max_tokens` and `duration` agree: a number set by hand
    turns `duration` off; without one, training is as long as `duration` allows until a speed is known.
    """
    if not isinstance(recipe, dict) or not isinstance(recipe.get("training"), dict):
        return recipe
    duration, training = recipe.get("duration"), recipe["training"]
    if duration is not None and "max_tokens" in training:
        return {name: value for name, value in recipe.items() if name != "duration"}
    longest = duration.get("max_tokens") if isinstance(duration, dict) else None
    return recipe if longest is None else recipe | {"training": training | {"max_tokens": longest}}
