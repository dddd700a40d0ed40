"""Writes what says of a recipe what its models say: docs/recipe.md, and the JSON Schema that editors read.

python -m tests.recipe_page
"""

import json
from copy import deepcopy
from itertools import groupby
from pathlib import Path
from typing import Any

from pipeline.recipe.evaluation import BENCHMARKS
from pipeline.recipe.overrides import PRESETS
from pipeline.recipe.reference import DERIVED, SCHEMA, SECTION, Schema, Section, Setting, of_models, sections
from pipeline.sources.benchmarks.items import SETS
from pipeline.sources.hub.catalog import ready_made
from pipeline.stages.quality import PROFILES
from trainer.config.model import SIZES

PAGE = Path(__file__).parents[1] / "docs" / "recipe.md"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
SHORT_CORPUS = r"^[\w.-]+(/[\w.-]+)?(:[1-9][0-9]*)?$"
# Numbers that YAML 1.1 or 1.2 reads as text but the loader accepts: 1_000 and 1e-4.
NUMBERS = {"integer": r"^[+-]?\d+(_\d+)*$", "number": r"^[+-]?\d+(_\d+)*(\.\d*)?([eE][+-]?\d+)?$"}

HEAD = """\
# The recipe

<!-- Written by `python -m tests.recipe_page`. Change the descriptions in the models instead. -->

A recipe is one YAML file that describes an experiment from corpora to model. This page lists every setting.
[concepts.md](concepts.md) explains words such as asset, variant and section.

- A setting that is not *required* may be left out. Then the *Default* holds. `null` is "not set".
- An unknown key is an error that names the nearest one.
- YAML takes `1e-4` for text, but a recipe reads it as a number. `1_000_000` is a number, too.
- `python -m pipeline recipe --explain training.optimizer` prints a section or a setting of this page.
- An editor with a YAML language server completes and checks a recipe whose first line is
  `# yaml-language-server: $schema=PATH`, where PATH leads to
  [recipe.schema.json](../pipeline/recipes/recipe.schema.json).
- [personal-data.md](personal-data.md) lists the values that `scrub` finds, and values that it does not find.
"""


def page() -> str:
    """The page as Markdown."""
    by_path = [(path, list(group)) for path, group in groupby(sections(), key=lambda one: one.path)]
    return "\n".join([HEAD, *(_chapter(path, variants) for path, variants in by_path)]).rstrip() + "\n"


def _chapter(path: str, variants: list[Section]) -> str:
    level = "##" if "." not in path else "###"
    lines = [f"{level} {path or 'Sections'}", ""]
    listed_before = sorted({one.same_as for one in variants if one.same_as is not None})
    if all(one.same_as is not None for one in variants):
        places = " and ".join(f"[{place}](#{_anchor(place)})" for place in listed_before)
        return "\n".join([*lines, f"The settings are those of {places}.", ""])
    if len(variants) > 1:
        lines += [f"One of: {', '.join(f'*{one.variant}*' for one in variants)}.", ""]
    for one in variants:
        if one.variant:
            lines += [f"{level}# {one.path}, {one.variant}", ""]
        lines += [one.about, "", *_table(one), ""]
    return "\n".join([*lines, *_presets(path)])


def _table(section: Section) -> list[str]:
    rows = sorted(section.settings, key=lambda one: not section.variant.startswith(f"{one.name}: "))
    return ["| Setting | Type | Default | What it does |", "|---|---|---|---|", *map(_row, rows)]


def _row(setting: Setting) -> str:
    name = f"`{setting.name}`"
    if setting.is_section:
        name = f"[{name}](#{_anchor(setting.path)})"
    kind = f"{setting.kind}, {setting.bounds}" if setting.bounds else setting.kind
    default = "*required*" if setting.default is None else setting.default
    default = default if setting.default in (None, DERIVED, SECTION) else f"`{default}`"
    cells = [name, kind, default, setting.description]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _presets(path: str) -> list[str]:
    if path == "quality":
        return [f"Profiles: {', '.join(f'`{name}`' for name in PROFILES)}.", ""]
    if path == "corpora":
        names = ", ".join(f"`{one.name}`" for one in ready_made())
        return [f"Ready-made corpora, described by `python -m pipeline corpora`: {names}.", ""]
    if path == "training.model":
        keys = list(next(iter(SIZES.values())))
        return [
            f"| Named size | {' | '.join(f'`{key}`' for key in keys)} |",
            "|---" * (len(keys) + 1) + "|",
            *(
                f"| `{size}` | {' | '.join(str(shape[key]) for key in keys)} |"
                for size, shape in SIZES.items()
            ),
            "",
        ]
    return []


def _anchor(heading: str) -> str:
    """The fragment that GitHub gives a heading."""
    return "".join(sign for sign in heading.lower() if sign.isalnum() or sign in "_-")


def schema() -> Schema:
    """That of the models, and the short forms that the loader also accepts, as plain JSON."""
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


def schema_text() -> str:
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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
