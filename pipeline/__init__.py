"""Corpora to token shards, and the Dagster graph that runs and records the way."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # a checker would take any name for one of this package
    # `pipeline.RecipeComponent`, as `dg` and a defs.yaml name it. No command pays for importing Dagster.

    def __getattr__(name: str) -> object:
        if name != "RecipeComponent":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from pipeline.component import RecipeComponent

        return RecipeComponent

    def __dir__() -> list[str]:
        return [*globals(), "RecipeComponent"]
