"""The JSON Schema of a recipe: that of the models, and the short forms that the loader also accepts."""

import json
from copy import deepcopy
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from pipeline.recipe.evaluation import BENCHMARKS
from pipeline.recipe.overrides import PRESETS
from pipeline.recipe.recipe import RECIPES, Recipe
from pipeline.sources.benchmarks.items import SETS
from pipeline.sources.hub.catalogue import ready_made
from pipeline.stages.quality import PROFILES
from trainer.config.model import SIZES

SCHEMA = RECIPES / "recipe.schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
SHORT_CORPUS = r"^[\w.-]+(/[\w.-]+)?(:[1-9][0-9]*)?$"
# Numbers that YAML 1.1 or 1.2 reads as text but the loader accepts: 1_000 and 1e-4.
NUMBERS = {"integer": r"^[+-]?\d+(_\d+)*$", "number": r"^[+-]?\d+(_\d+)*(\.\d*)?([eE][+-]?\d+)?$"}

Schema = dict[str, Any]


class _Untitled(GenerateJsonSchema):
    """Without the titles that repeat each key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@cache
def of_models() -> Schema:
    """The schema of the models, without short forms."""
    return Recipe.model_json_schema(schema_generator=_Untitled)


def schema() -> Schema:
    """The schema, as plain JSON."""
    made: Schema = {"$schema": DIALECT, **deepcopy(of_models())}
    models: dict[str, Schema] = made["$defs"]
    for properties in (made["properties"], models["Corpus"]["properties"]):
        _takes_a_preset(properties, "quality", models["QualityParams"], list(PROFILES))
    _takes_a_preset(models["TrainingConfig"]["properties"], "model", models["ModelConfig"], list(SIZES))
    _takes_a_depth(models["TrainingConfig"], models["ModelConfig"])
    _takes_short_forms(made["properties"]["corpora"])
    _takes_benchmarks(made["properties"], models)
    _calls_its_source_from(models["ExistingTokenizer"])
    _amend(made, models)
    return made


def text() -> str:
    """The content of the schema's file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _takes_a_preset(properties: dict[str, Schema], key: str, model: Schema, names: list[str]) -> None:
    """`quality: docs`, and `quality: {profile: docs, min_words: 30}`."""
    preset = {"enum": names, "description": f"One of: {', '.join(names)}."}
    section = properties[key]
    section["anyOf"] = [preset, *(section.get("anyOf") or [{"$ref": section.pop("$ref")}])]
    model["properties"] = {PRESETS[key]: preset, **model["properties"]}
    if required := model.pop("required", None):
        model["anyOf"] = [{"required": [PRESETS[key]]}, {"required": required}]


def _takes_a_depth(training: Schema, model: Schema) -> None:
    """`model: {depth: 12}`, with which a batch and a length need not be set."""
    depth = {"type": "integer", "minimum": 1, "description": "Blocks; the rest follows by nanochat's laws."}
    model["properties"] = {"depth": depth, **model["properties"]}
    model["anyOf"].append({"required": ["depth"]})
    set_by_depth = ["global_batch_tokens", "max_tokens"]
    training["required"] = [name for name in training["required"] if name not in set_by_depth]
    by_depth = {"properties": {"model": {"type": "object", "required": ["depth"]}}}
    training["anyOf"] = [by_depth, {"required": set_by_depth}]


def _takes_short_forms(corpora: Schema) -> None:
    """`- tinystories:1000`. The names are listed so that an editor can complete them."""
    names = [one.name for one in ready_made()]
    short = {"anyOf": [{"enum": names}, {"type": "string", "pattern": SHORT_CORPUS}]}
    corpora["items"] = {"anyOf": [short, corpora["items"]]}


def _takes_benchmarks(properties: dict[str, Schema], models: dict[str, Schema]) -> None:
    """`evaluation: {benchmarks: easy}` or a list with names, and `decontamination: benchmarks`."""
    benchmarks = models["EvaluationParams"]["properties"]["benchmarks"]
    of_set = {"enum": list(SETS)}
    items = {"anyOf": [of_set, {"type": "string"}, benchmarks.pop("items")]}
    del benchmarks["type"]
    benchmarks["anyOf"] = [of_set, {"type": "string"}, {"type": "array", "items": items}]
    all_of_them = {"const": BENCHMARKS}
    properties["decontamination"]["anyOf"].insert(0, all_of_them)
    sets = models["Decontamination"]["properties"]["sets"]
    inside = {name: sets.pop(name) for name in ("type", "items", "minItems") if name in sets}
    inside["items"] = {"anyOf": [all_of_them, inside["items"]]}
    sets["anyOf"] = [all_of_them, inside]


def _calls_its_source_from(tokenizer: Schema) -> None:
    source = tokenizer["properties"]["source"]
    tokenizer["properties"] = {"from": source, **tokenizer["properties"]}
    tokenizer["required"].remove("source")
    tokenizer["anyOf"] = [{"required": ["from"]}, {"required": ["source"]}]


def _amend(place: Any, models: dict[str, Schema]) -> None:
    """Lets every number be text, and requires the key that distinguishes the variants of a section, although
    their models have a default.
    """
    if isinstance(place, dict):
        if "discriminator" in place:
            key = place["discriminator"]["propertyName"]
            for variant in place["oneOf"]:
                required = models[variant["$ref"].rpartition("/")[2]].setdefault("required", [])
                if key not in required:
                    required.append(key)
        kind = place.get("type")
        if isinstance(kind, str) and kind in NUMBERS:
            place |= {"type": [kind, "string"], "pattern": NUMBERS[kind]}
        place = list(place.values())
    if isinstance(place, list):
        for inside in place:
            _amend(inside, models)
