"""The JSON Schema of a recipe: that of its models. `python -m tests.recipe_page` writes SCHEMA, for editors,
with what else the loader accepts.
"""

from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from pipeline.recipe.recipe import RECIPES, Recipe

SCHEMA = RECIPES / "recipe.schema.json"
Schema = dict[str, Any]


class _Untitled(GenerateJsonSchema):
    """Without the titles that repeat each key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@cache
def of_models() -> Schema:
    """The schema of the models."""
    return Recipe.model_json_schema(schema_generator=_Untitled)
