"""What is said about the settings of a recipe: every setting is described, and the page, the schema, the help
and the Launchpad say what the models say.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from pipeline.assets.operations.resources import PipelineResources
from pipeline.cli import main
from pipeline.recipe.recipe import RECIPES, Recipe
from pipeline.recipe.reference import DERIVED, SCHEMA, SECTION, Setting, as_yaml, found_settings, sections
from tests.recipe_page import PAGE, page, schema_text

WRITE = "run `python -m tests.recipe_page`"
RECIPE_FILES = sorted(RECIPES.glob("*.yaml"))
TRAINING: dict[str, Any] = {
    "model": "tiny",
    "seq_len": 128,
    "global_batch_tokens": 2048,
    "micro_batch_size": 16,
    "max_tokens": 409_600,
    "checkpoint": {"every_tokens": 204_800},
    "evaluation": {"every_tokens": 204_800},
}
LEAST: dict[str, Any] = {"name": "least", "corpora": ["tinystories:1000"], "training": TRAINING}


def all_settings() -> list[Setting]:
    return [one for section in sections() for one in section.settings]


@pytest.fixture(scope="module")
def accepts() -> Callable[[dict[str, Any]], bool]:
    """Whether the schema's file takes a recipe."""
    jsonschema = pytest.importorskip("jsonschema")
    written = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(written)
    accepted: Callable[[dict[str, Any]], bool] = jsonschema.Draft202012Validator(written).is_valid
    return accepted


def test_every_setting_has_a_description() -> None:
    bare = {one.path for one in all_settings() if not re.fullmatch(r"[A-Z0-9`].{8,}\.", one.description)}
    assert not bare
    assert all(section.about for section in sections())
    assert len({one.path for one in all_settings()}) > 200


def test_the_default_that_is_shown_is_the_one_that_applies() -> None:
    applied: Any = Recipe.model_validate(LEAST).model_dump(mode="json")
    compared = 0
    for section in sections():
        values, given = applied, LEAST
        for key in section.path.split(".") if section.path else ():
            values = values.get(key) if isinstance(values, dict) else None
            given = given.get(key, {}) if isinstance(given, dict) else {}
        if section.variant or section.path == "training.model" or not isinstance(values, dict):
            continue  # a tokenizer has one variant's values, a named size those of its shape
        for one in section.settings:
            if one.default not in (None, DERIVED, SECTION) and one.name in values and one.name not in given:
                assert yaml.safe_load(one.default) == values[one.name], one.path
                compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-8, "1.0e-8"), (2.5e-7, "2.5e-7"), (1e22, "1.0e+22"), (128_000_000, "128_000_000"), (None, "null")],
)
def test_numbers_are_shown_as_yaml_reads_them(value: float | None, text: str) -> None:
    assert as_yaml(value) == text
    assert yaml.safe_load(text) == value


@pytest.mark.parametrize(
    ("path", "kind", "default", "bounds"),
    [
        ("training.optimizer.muon_lr", "number", "0.01", "above 0, at most 1.0e+30"),
        ("training.optimizer.lr", "number", "derived", "above 0, at most 1.0e+30"),
        ("training.max_tokens", "whole number", None, "1 to 1_000_000_000_000_000_000"),
        ("training.compile", "true, false or `auto`", "auto", ""),
        ("training.optimizer.betas", "list of 2 numbers", "derived", ""),
        ("training.stages.weights", "mapping from text to number or null", "null", "not empty"),
        ("quality.min_stop_words", "whole number or null", "2", "0 to 8"),
        ("corpora.source.kind", "`python_docs`", None, ""),
        ("tokenizer.from", "text", None, "not empty"),
        ("training.averaging", "section or null", "null", ""),
    ],
)
def test_a_setting_is_shown_with_its_type_default_and_bounds(
    path: str, kind: str, default: str | None, bounds: str
) -> None:
    found = found_settings(path)[0]
    assert (found.kind, found.default, found.bounds) == (kind, default, bounds)


def test_the_page_is_what_the_models_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"docs/recipe.md is stale: {WRITE}"


def test_every_link_of_the_page_leads_to_a_heading() -> None:
    text = page()
    headings = {
        re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))
        for heading in re.findall(r"^#+ (.*)$", text, re.M)
    }
    links = set(re.findall(r"\]\(#([^)]*)\)", text))
    assert links and links <= headings


def test_every_setting_is_on_the_page() -> None:
    text = page()
    for one in all_settings():
        assert f"| `{one.name}` |" in text or f"| [`{one.name}`](" in text, one.path


def test_the_schema_is_what_the_models_say() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), f"the schema is stale: {WRITE}"


@pytest.mark.parametrize("path", RECIPE_FILES, ids=lambda path: path.stem)
def test_a_shipped_recipe_names_its_schema_and_follows_it(
    path: Path, accepts: Callable[[dict[str, Any]], bool]
) -> None:
    text = path.read_text(encoding="utf-8")
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named and (path.parent / named[1]).resolve() == SCHEMA.resolve()
    assert accepts(yaml.safe_load(text))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"quality": "docs"},
        {"evaluation": {"benchmarks": "easy"}, "decontamination": "benchmarks"},
        {
            "evaluation": {"benchmarks": ["core", "sciq/rc_5shot", {"name": "mine", "path": "mine.jsonl"}]},
            "decontamination": {"sets": ["benchmarks"], "action": "report"},
        },
        {"quality": {"profile": "docs", "min_words": 30}},
        {"quality": {"min_doc_words": None}},
        {
            "corpora": [
                "roneneldan/TinyStories",
                {"name": "own", "source": {"kind": "files", "paths": ["a.txt"]}},
            ]
        },
        {"tokenizer": {"from": "gpt2", "revision": "main"}},
        {"tokenizer": {"source": "gpt2"}},
        {"tokenizer": {"vocab_size": "8_192"}},
        {"training": TRAINING | {"model": {"size": "171m", "qk_norm": True}}},
        {"training": TRAINING | {"optimizer": {"lr": "1e-4"}, "compile": "auto"}},
        {"training": TRAINING | {"averaging": {"half_life_tokens": 2048}}},
    ],
)
def test_the_schema_takes_what_the_loader_takes(
    changes: dict[str, Any], accepts: Callable[[dict[str, Any]], bool]
) -> None:
    Recipe.model_validate(LEAST | changes)
    assert accepts(LEAST | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"qualty": "docs"},
        {"quality": "nice"},
        {"quality": {"min_wrds": 30}},
        {"evaluation": {"benchmarks": [{"path": "mine.jsonl"}]}},
        {"decontamination": "evaluation"},
        {"corpora": []},
        {"corpora": ["two words"]},
        {"corpora": [{"name": "own", "source": {"kind": "file", "paths": ["a.txt"]}}]},
        {"corpora": [{"name": "own", "source": {"paths": ["a.txt"]}}]},
        {"tokenizer": {"from": "gpt2", "vocab_size": 8192}},
        {"dedup": {"threshold": 1.5}},
        {"training": TRAINING | {"max_tokens": "many"}},
        {"training": TRAINING | {"model": {"n_layers": 2}}},
        {"training": TRAINING | {"model": "2b"}},
        {"training": {name: value for name, value in TRAINING.items() if name != "max_tokens"}},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(
    changes: dict[str, Any], accepts: Callable[[dict[str, Any]], bool]
) -> None:
    with pytest.raises(ValidationError):
        Recipe.model_validate(LEAST | changes)
    assert not accepts(LEAST | changes)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            ["training.optimizer.muon_lr"],
            [
                "training.optimizer.muon_lr: number; above 0, at most 1.0e+30; default: 0.01\n",
                "Peak learning rate",
            ],
        ),
        (["training.optimizer"], ["  kind: ", "  lr: ", "  groups: ", "  betas: "]),
        (
            ["corpora[0].source"],
            [
                "[kind: files]",
                "[kind: hub]",
                "[kind: python_docs]",
                "  page_seconds: number; above 0; default: 10.0",
            ],
        ),
        ([], ["  corpora ", "  training ", "  training.optimizer ", "  tokenizer "]),
    ],
)
def test_a_setting_a_section_its_variants_and_the_list_of_sections_are_explained(
    asked: list[str], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recipe", "--explain", *asked]) == 0
    said = capsys.readouterr().out
    assert [words for words in told if words not in said] == []


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("training.optimzer", "training.optimizer"),
        ("muon_lr", "training.optimizer.muon_lr"),
        ("training.max_token", "training.max_tokens"),
    ],
)
def test_an_unknown_setting_names_the_nearest(
    asked: str, nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recipe", "--explain", asked]) == 2
    assert capsys.readouterr().err == f"error: unknown setting {asked!r}: did you mean {nearest!r}?\n"


def test_the_launchpad_describes_its_fields_as_the_recipe_does() -> None:
    def compare(config: Any, model: Any, path: str) -> int:
        compared = 0
        for name, field in config.model_fields.items():
            same, place = model.model_fields[name], f"{path}.{name}"
            setting = found_settings(place)[0]
            assert field.description == setting.description
            if setting.is_section:
                compared += compare(field.annotation, same.annotation, place)
            else:
                assert (field.default, field.annotation) == (None, same.annotation | None)
                compared += 1
        return compared

    fields, models = PipelineResources.model_fields, Recipe.model_fields
    shown = [compare(fields[n].annotation, models[n].annotation, n) for n in ("training", "dedup", "shards")]
    assert sum(shown) == 17
