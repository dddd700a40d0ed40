"""A mistake in a recipe is one sentence that says where it is and what to change."""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field, TypeAdapter, ValidationError

from pipeline.recipe.loading import load_recipe, stored_at
from pipeline.recipe.problems import explained
from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.sources.hub.dataset import HubConfig
from pipeline.steps.recipe_versions import store_of
from pipeline.store.fingerprint import canonical_json
from pipeline.store.store import default_store
from tests.integration.project import TRAINING

MINIMAL: dict[str, Any] = {
    "name": "mine",
    "corpora": [{"name": "notes", "source": {"kind": "files", "paths": ["notes/*.md"]}}],
    "training": TRAINING,
}
STAGED = TRAINING | {"stages": [{"name": "all", "weights": {"notes": 1}}]}


def write(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(MINIMAL | changes))
    return path


def test_a_store_in_a_bucket_changes_nothing_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.delenv("GROUNDWORK_STORE", raising=False)
    plain = load_recipe(write(tmp_path))
    load_recipe(write(tmp_path, store="gs://bucket/mine"))
    load_recipe(write(tmp_path, store="az://container/mine"))
    path = write(tmp_path, store="s3://bucket/mine")
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(path))
    there = load_recipe(path)
    assert canonical_json(there) == canonical_json(plain)
    assert store_of(there).files.place == default_store(stored_at()).files.place == "s3://bucket/mine"
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "here"))
    assert store_of(there).files.place == default_store(stored_at()).files.place == str(tmp_path / "here")
    with pytest.raises(RecipeError, match="store"):
        load_recipe(write(tmp_path, store="ftp://bucket/mine"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"corpora": [{"name": "a", "source": {"kind": "webz"}}]},
            r"corpora\.0\.source\.kind: must be one of .*'files'.*'hub'.*, not 'webz'",
        ),
        ({"corpora": []}, "corpora"),
        ({"corpora": [{"name": "a", "source": {"kind": "webz"}}]}, r"^((?!at least).)*$"),
        (
            {"corpora": [MINIMAL["corpora"][0] | {"weight": 1}, MINIMAL["corpora"][0] | {"name": "more"}]},
            "'more' has no weight, but others do",
        ),
        ({"corpora": MINIMAL["corpora"] * 2}, "two corpora are named 'notes'"),
        ({"corpora": [MINIMAL["corpora"][0] | {"train": False}]}, "none is trained on, since each has"),
        (
            {"corpora": [MINIMAL["corpora"][0] | {"train": False, "weight": 1}]},
            r"corpora\.0: weight has no effect with `train: false`",
        ),
        (
            {"corpora": [MINIMAL["corpora"][0], MINIMAL["corpora"][0] | {"name": "old", "train": False}]},
            "corpus 'old' has `train: false` and removes nothing from the corpora before it.*: list it first",
        ),
        (
            {
                "corpora": [MINIMAL["corpora"][0] | {"name": "old", "train": False}, *MINIMAL["corpora"]],
                "training": TRAINING | {"stages": [{"name": "all", "weights": {"old": 1}}]},
            },
            "stage 'all': weights has 'old', .*; use notes",
        ),
        (
            {
                "corpora": [MINIMAL["corpora"][0] | {"name": "old", "train": False}, *MINIMAL["corpora"]],
                "mixture": {"search": {"target": {"old": 1}}},
            },
            "mixture.search.target: corpus 'old' has `train: false`",
        ),
        ({"corpora": [{"name": "Bad Name", "source": MINIMAL["corpora"][0]["source"]}]}, r"corpora\.0\.name"),
        ({"dedupe": {}}, "unknown key 'dedupe': did you mean 'dedup'"),
        ({"dedup": {"treshold": 0.7}}, "dedup: unknown key 'treshold': did you mean 'threshold'"),
        ({"training": {"engine": {}}}, "training: unknown key 'engine': it belongs at the top"),
        ({"dedup": {"retention": {}}}, "dedup: unknown key 'retention': it belongs at the top"),
        ({"seq_len": 64}, "unknown key 'seq_len': did you mean 'training.seq_len' or "),
        ({"min_doc_words": 3}, r"did you mean 'corpora\.quality\.min_doc_words' or 'quality\.min_doc_words'"),
        (
            {"training": TRAINING | {"vocab_size": 512}},
            r"training: unknown key 'vocab_size': did you mean 'tokenizer\.vocab_size'\?$",
        ),
        ({"name": date(2024, 1, 1)}, "name: must be text, not 2024-01-01: write it in quotes, '2024-01-01'"),
        (
            {"corpora": [{"name": "a", "source": {"kind": "files", "paths": ["x"], "separator": "tab"}}]},
            "separator: must be text of no more characters than 1, not 'tab'",
        ),
        (
            {"corpora": [{"name": "a", "source": {"kind": "files", "paths": ["x"], "separator": '"'}}]},
            "separator: '\"' cannot separate fields; write for example ';'",
        ),
        ({"quality": "nice"}, "unknown profile 'nice'; choose from .*docs"),
        (
            {"training": TRAINING | {"optimizer": {"kind": "adam"}}},
            r"training\.optimizer\.kind: must be 'adamw', 'muon', .* or 'python', not 'adam'$",
        ),
        (
            {"training": TRAINING | {"global_batch_tokens": 500}},
            r"training: global_batch_tokens 500 is not a multiple of .*; set it to 512",
        ),
        (
            {"training": TRAINING | {"stages": [{"name": "all", "weights": {"note": 1}}]}},
            "stage 'all': weights has 'note', .*; use notes",
        ),
        (
            {"training": STAGED, "mixture": {"max_epochs": 4}},
            "mixture.max_epochs limits shares, but stage 'all' sets its own",
        ),
        (
            {"training": STAGED, "corpora": [MINIMAL["corpora"][0] | {"weight": 2}]},
            r"corpora\.0\.weight has no effect, since every stage has `weights` of its own",
        ),
        (
            {"training": TRAINING | {"optimizer": {"kind": "adamw", "muon_lr": 0.1}}},
            r"training\.optimizer\.muon_lr has no effect here, it belongs to kind muon and not to adamw",
        ),
        ({"tokenizer": {"vocab_size": 259}}, r"tokenizer\.vocab_size: must be at least 260, not 259"),
        ({"engine": {"workers": 100_000}}, r"engine\.workers: must be at most 1024, not 100000"),
        ({"engine": {"address": "head:6379"}}, r"engine: address needs kind: ray; set the kind"),
        ({"engine": {"kind": "ray", "address": "head"}}, r"engine\.address: "),
        ({"quality": {"max_new_line_ratio": 1e30}}, r"quality\.max_new_line_ratio: must be at most 10{12}"),
        ({"shards": {"shard_tokens": "many"}}, r"shards\.shard_tokens: must be a whole number, not 'many'"),
        (
            {"corpora": [{"name": "a", "source": {}}]},
            r"corpora\.0\.source\.kind is missing: .* --explain corpora.source` lists",
        ),
        ({"launch": {"kind": "slurm"}}, r"launch\.kind: must be .*'command' or 'ray', not 'slurm'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe(write(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_a_directory_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read (Is a directory): name a YAML file"


@pytest.mark.parametrize("content", ["corpora: [", "just text", "", "\x00", f"a: {'[' * 5_000}{']' * 5_000}"])
def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(RecipeError, match=r"recipe\.yaml"):
        load_recipe(path)


def test_an_anchor_that_holds_itself_is_told(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(f"{path.read_text()}\nvariants: &all {{one: *all}}\n")
    with pytest.raises(RecipeError, match=r"an anchor \(`&name`\) holds itself"):
        load_recipe(path)


def test_a_recipe_that_is_not_utf_8_is_told_where(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes("# größe\n".encode("latin-1") + path.read_bytes())
    with pytest.raises(RecipeError, match=r"recipe\.yaml: is not UTF-8 at byte 4: save it as UTF-8$"):
        load_recipe(path)


def test_a_missing_recipe_is_answered_with_those_that_ship(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no such recipe\. Name .* default, .* in --recipe or G"):
        load_recipe(tmp_path / "nowhere.yaml")


def test_overrides_change_one_setting_and_leave_its_neighbors(tmp_path: Path) -> None:
    recipe = load_recipe(
        write(tmp_path, dedup={"threshold": 0.7, "bands": 20}), {"dedup": {"threshold": 0.9}}
    )
    assert (recipe.dedup.threshold, recipe.dedup.bands) == (0.9, 20)


def test_an_override_keeps_the_rest_of_a_named_preset(tmp_path: Path) -> None:
    named = load_recipe(write(tmp_path, quality="docs", training=TRAINING | {"model": "tiny"}))
    overrides = {"quality": {"min_doc_words": 40}, "training": {"model": {"n_layers": 2}}}
    changed = load_recipe(tmp_path / "recipe.yaml", overrides)
    assert changed.quality == named.quality.model_copy(update={"min_doc_words": 40})
    assert changed.training.model == named.training.model.model_copy(update={"n_layers": 2})
    assert (
        load_recipe(tmp_path / "recipe.yaml", {"training": {"model": "small"}}).training.model.d_model == 384
    )


def test_what_is_recorded_holds_no_signature_of_a_url(tmp_path: Path) -> None:
    path = "https://store.example/notes.jsonl?sp=r&sig=SECRET"
    recipe = load_recipe(
        write(tmp_path, corpora=[{"name": "notes", "source": {"kind": "files", "paths": [path]}}])
    )
    assert recipe.corpora[0].source.patterns() == [path]
    for recorded in (recipe.model_dump_json(), canonical_json(recipe)):
        assert "SECRET" not in recorded and "https://store.example/notes.jsonl" in recorded


def test_relative_paths_are_relative_to_the_recipe_and_no_machine_is_in_what_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    monkeypatch.chdir("/")
    recipe = load_recipe(path)
    assert recipe.corpora[0].source.patterns() == [str(tmp_path / "notes/*.md")]
    assert str(tmp_path) not in recipe.model_dump_json() + canonical_json(recipe)


def test_a_corpus_can_be_named_in_one_word_with_how_much_of_it(tmp_path: Path) -> None:
    corpora = ["tinystories:1000", "wikimedia/wikipedia", *MINIMAL["corpora"]]
    recipe = load_recipe(write(tmp_path, corpora=corpora))
    assert recipe.corpus_names[:2] == ["tinystories", "wikipedia"]
    source = recipe.corpora[0].source
    assert isinstance(source, HubConfig)
    assert (source.name, source.max_documents) == ("roneneldan/TinyStories", 1000)
    unknown = r"'tinystory' is neither a ready-made corpus \(did you mean 'tinystories'\?\)"
    with pytest.raises(RecipeError, match=unknown):
        load_recipe(write(tmp_path, corpora=["tinystory"]))


def test_the_word_benchmarks_stands_for_the_benchmarks_as_evaluation_sets(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("")
    own = {"name": "mine", "path": "mine.jsonl"}
    other = {"name": "exam", "source": {"kind": "files", "paths": ["exam.txt"]}}
    words: list[Any] = [
        "benchmarks",
        {"sets": "benchmarks", "action": "report"},
        {"sets": [other, "benchmarks"]},
    ]
    for word in words:
        path = write(tmp_path, evaluation={"benchmarks": [own]}, decontamination=word)
        decontamination = load_recipe(path).decontamination
        assert decontamination
        found = decontamination.sets[-1]
        assert found.name == "mine" and found.source.model_dump() == {"kind": "benchmark", **own}
        # as lineage records it
        again = load_recipe(path).model_validate(load_recipe(path).model_dump(mode="json"))
        assert again.decontamination == decontamination.model_copy(
            update={"sets": again.decontamination.sets}
        )
    path = write(tmp_path, evaluation={"benchmarks": [own]})
    assert load_recipe(path, {"decontamination": "benchmarks"}).removes_contaminated


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"decontamination": "benchmarks"}, "and for evaluation.texts, but there are none"),
        ({"evaluation": {"benchmarks": [{"name": "a", "path": "a.jsonl"}]}}, "no such file"),
        (
            {"evaluation": {"benchmarks": [{"name": "a", "path": "a"}, {"name": "a", "path": "b"}]}},
            "two benchmarks are named 'a'",
        ),
        ({"evaluation": {"benchmarks": ["ARC"]}}, "evaluation.benchmarks.0.name: must be lower-case letters"),
        (
            {"evaluation": {"benchmarks": [3]}, "decontamination": "benchmarks"},
            "evaluation.benchmarks.0: must be a mapping",
        ),
    ],
)
def test_a_mistake_in_the_benchmarks_is_told(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe(write(tmp_path, **changes))
    assert said in str(raised.value) and "decontamination.sets" not in str(raised.value)


def patterns(schema: Any) -> Iterator[str]:
    """The regular expressions of all settings and of the names that a recipe gives."""
    if isinstance(schema, dict):
        if schema.get("type") == "string" and (pattern := schema.get("pattern")):
            yield pattern
        yield from schema.get("patternProperties", {})
    inside = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for one in inside:
        yield from patterns(one)


@pytest.mark.parametrize("pattern", sorted(set(patterns(Recipe.model_json_schema()))))
def test_the_form_of_a_setting_is_told_in_words_with_an_example(pattern: str) -> None:
    asked = TypeAdapter(Annotated[str, Field(pattern=pattern)])
    with pytest.raises(ValidationError) as raised:
        asked.validate_python("a, b: ?")
    said = explained(raised.value)
    assert pattern not in said and "^" not in said
    example = re.search("such as `(.+?)`", said)
    assert example and asked.validate_python(example[1])


def test_an_owner_that_is_none_is_told_what_one_is(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe(write(tmp_path, owners=["nobody"]))
    assert str(raised.value).endswith(
        "owners.0: must be an e-mail address such as `ann@example.org`, or `team:` and a name, such as "
        "`team:data`, not 'nobody'"
    )


@pytest.mark.parametrize(
    ("zone", "advice"),
    [
        ("Berlin", "did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("Europe", "did you mean "),
        ("", "see `timedatectl list-timezones`"),
        ("../../etc/passwd", "see `timedatectl list-timezones`"),
        ("+02:00", "see `timedatectl list-timezones`"),
    ],
)
def test_a_time_zone_that_is_none_is_told_one_like_it(tmp_path: Path, zone: str, advice: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe(write(tmp_path, timezone=zone))
    assert "timezone: must be the name of a time zone, such as `Europe/Berlin`, not " in str(raised.value)
    assert advice in str(raised.value)
