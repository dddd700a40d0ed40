"""The JSON Schema of a recipe for editors, which `python -m tests.recipe_page` writes to SCHEMA."""

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
    """The schema of the models. Descriptions are in one line each: editors show the lines of a docstring."""
    schema: Schema = _in_one_line(Recipe.model_json_schema(schema_generator=_Untitled))
    return schema


def _in_one_line(part: Any) -> Any:
    if isinstance(part, list):
        return [_in_one_line(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        key: " ".join(inner.split())
        if key == "description" and isinstance(inner, str)
        else _in_one_line(inner)
        for key, inner in part.items()
    }
