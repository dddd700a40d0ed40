"""The JSON Schema of a recipe for editors, which `python -m tests.recipe_page` writes to SCHEMA."""

from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from pipeline.recipe.recipe import RECIPES, Recipe

SCHEMA = RECIPES / "recipe.schema.json"
Schema = dict[str, Any]


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles, which only repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@cache
def of_models() -> Schema:
    """The schema of the models."""
    return Recipe.model_json_schema(schema_generator=_Untitled)
