"""The settings of a recorded recipe that differ from the defaults."""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter

from pipeline.recipe.overrides import CORPORA, Settings, changed
from pipeline.recipe.recipe import Recipe
from pipeline.recipe.sections import Corpus, Rules
from pipeline.sources import KINDS
from pipeline.stages.bpe import ExistingTokenizer, TokenizerParams
from pipeline.stages.quality import PROFILES


def of_recipe(recipe: Mapping[str, Any]) -> Settings:
    """The sections of a recipe, given as its dump, each with only the settings that differ from the defaults
    of this version, and of `corpora` the rules that differ from those of the recipe. Settings without a
    default, or unknown to this version, are always there.
    """
    settings = {name: value for name, value in recipe.items() if name not in ("name", CORPORA)}
    found = _of_model(Recipe, settings)
    tokenizer, quality = recipe["tokenizer"], recipe["quality"]
    kind = ExistingTokenizer if "source" in tokenizer else TokenizerParams
    found["tokenizer"] = _of_model(kind, tokenizer)
    profiles = {name: profile.model_dump(mode="json") for name, profile in PROFILES.items()}
    nearest = min(profiles, key=lambda name: len(changed(quality, profiles[name])))
    found["quality"] = {"profile": nearest} | changed(quality, profiles[nearest])
    rules = {name: value for name, value in recipe.items() if name in Rules._fields}
    found[CORPORA] = {
        corpus["name"]: own
        for corpus in recipe[CORPORA]
        if (own := changed(_of_model(Corpus, {name: corpus[name] for name in rules}), rules))
    }
    return {name: section for name, section in found.items() if section}


def of_source(source: Mapping[str, Any]) -> Settings:
    """The settings of a corpus's source that differ from the defaults of its kind."""
    configs = {get_args(config.model_fields["kind"].annotation)[0]: config for config in KINDS}
    return {"kind": source["kind"]} | _of_model(configs[source["kind"]], source)


def _of_model(model: type[BaseModel], values: Mapping[str, Any]) -> Settings:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    found: Settings = {}
    for key, value in values.items():
        field = fields.get(key)
        if field is None:
            found[key] = value
        elif field.is_required():
            section = field.annotation
            if isinstance(section, type) and issubclass(section, BaseModel):
                value = _of_model(section, value)
            found[key] = value
        else:
            default = field.get_default(call_default_factory=True, validated_data=dict(values))
            written = TypeAdapter(Any).dump_python(default, mode="json", by_alias=True)
            found |= changed({key: value}, {key: written})
    return found
