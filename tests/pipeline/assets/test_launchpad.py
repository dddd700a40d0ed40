"""What the Launchpad's fields say of a run."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.snap.snap_to_yaml import default_values_yaml_from_type_snap

from pipeline.assets.graph import definitions
from pipeline.assets.operations.launchpad import differences
from pipeline.assets.operations.resources import PipelineResources, checked, with_values_of
from pipeline.assets.used_recipe import OWN
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.recipe.recipe import RecipeError
from pipeline.recipe.variants import load_all
from tests.integration.project import TRAINING
from tests.pipeline.assets.test_leaderboard import RECIPE
from trainer.system.paths import STORE_VARIABLE


def test_only_the_settings_that_differ_from_the_recipe_are_named_with_their_paths() -> None:
    recipe = {
        "training": {"seed": 1, "optimizer": {"lr": 0.003, "kind": "adamw"}},
        "quality": {"min_words": 5},
    }
    given = {
        "training": {"seed": 1, "optimizer": {"lr": 0.01, "kind": "adamw"}, "samples": {"prompts": ["a"]}},
        "quality": {"profile": "docs"},
    }
    assert differences(given, recipe) == {
        "training.optimizer.lr": "0.01",
        "training.samples.prompts": '["a"]',
        "quality.profile": "docs",
    }


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe with a variant."""
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE | {"variants": {"fast": {"training": {"seed": 5}}}}))
    monkeypatch.setenv(RECIPE_VARIABLE, str(path))
    return path


def opened(job: dg.JobDefinition) -> dict[str, Any]:
    """The settings of the workshop with which the Launchpad opens."""
    snapshot = job.get_job_snapshot()
    schema, root = snapshot.config_schema_snapshot, snapshot.mode_def_snaps[0].root_config_key
    shown = yaml.safe_load(default_values_yaml_from_type_snap(schema, schema.get_config_snap(root or "")))
    return dict(shown["resources"]["workshop"]["config"])


def test_the_launchpad_opens_with_the_values_of_the_recipe_also_beside_variants(file: Path) -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(list(load_all(file))))
    def model(workshop: PipelineResources) -> None: ...

    workshop = with_values_of(load_recipe(file), OWN)
    job = dg.Definitions(
        assets=[model],
        jobs=[dg.define_asset_job("train", [model])],
        resources={"workshop": checked(workshop)},
    ).resolve_job_def("train")
    assert (opened(job)["name"], opened(job)["notes"]) == ("", "")  # to be filled in
    training = opened(job)["training"]
    assert training["max_tokens"] == TRAINING["max_tokens"]
    assert training["model"].items() <= TRAINING["model"].items()
    assert workshop.recipe == load_recipe(file)


def test_a_value_that_is_refused_names_the_run_and_not_the_file(file: Path) -> None:
    with pytest.raises(RecipeError, match=r"^the settings of this run, from the Launchpad or -c: training"):
        _ = PipelineResources(overrides={"training": {"seq_len": 1}}).recipe
    file.write_text(file.read_text().replace("seed: 5", "sed: 5"))
    with pytest.raises(RecipeError, match=r"recipe.yaml: variants.fast"):
        load_all(file)


def test_settings_for_a_step_that_has_none_are_refused(file: Path, tmp_path: Path) -> None:
    """They were dropped without a word: the training ran for as long as the recipe says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
        job = definitions(OWN).resolve_job_def("pretrain")
    for step in job.nodes_in_topological_order:
        if not step.name.endswith("source"):  # which Dagster observes
            settings = {"ops": {step.name: {"config": {"training": {"max_tokens": 5}}}}}
            with pytest.raises(dg.DagsterInvalidConfigError, match="training"):
                dg.validate_run_config(job, settings)
    dg.validate_run_config(job, {"ops": {"tokenizer": {"config": {"retrain": True}}}})


def test_a_run_is_called_by_its_name_or_by_its_recipe_variant_and_settings(file: Path) -> None:
    recipe = load_recipe(file)
    assert PipelineResources().called == "mine"
    assert PipelineResources(name="first try").called == "first try"
    assert PipelineResources(overrides={"training": {"seed": 7}}).called == "mine seed 7"
    variant = with_values_of(recipe, OWN)
    variant._variant = "fast"
    assert variant.called == "mine fast" and variant.recipe.training.seed == 5


def test_a_run_may_have_what_a_variant_accepts_and_the_recipe_refuses(file: Path) -> None:
    """The partition of a run is not known before it is launched."""
    wide = {"training": {"model": {"d_model": 96, "n_heads": 3}}}
    file.write_text(yaml.safe_dump(RECIPE | {"variants": {"wide": wide}}))
    definition = checked(with_values_of(load_recipe(file), OWN))

    def given(heads: int) -> dict[str, Any]:
        return {"config": {"training": {"model": {"n_heads": heads}}}}

    assert definition.apply_config_mapping(given(6)).success
    with pytest.raises(dg.DagsterError, match=r"^the settings of this run.*d_model 64 must be a multiple"):
        definition.apply_config_mapping(given(7))


@pytest.mark.parametrize(
    ("was", "became", "said"),
    [
        ("corpora:", "corpora: [", "not valid YAML: line "),
        ("seq_len:", "sequence:", "training: unknown key 'sequence'"),
        ("seed: 5", "sed: 5", "variants.fast: training: unknown key 'sed'"),
        ("a file that is gone", "", "no such recipe"),
    ],
)
def test_a_recipe_that_was_broken_since_the_ui_read_it_is_refused_in_its_own_words(
    file: Path, was: str, became: str, said: str
) -> None:
    definition = checked(with_values_of(load_recipe(file), OWN))
    text = file.read_text()
    file.write_text(text.replace(was, became, 1)) if was in text else file.unlink()
    with pytest.raises(dg.DagsterError) as refused:
        definition.apply_config_mapping({"config": {}})
    assert isinstance(refused.value, RecipeError)
    assert str(refused.value).startswith(f"{file}: {said}")


@pytest.mark.parametrize("place", ["file", "/proc/nowhere"])
def test_a_store_that_cannot_be_written_is_refused_before_there_is_a_run(
    file: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, f"{file}/store" if place == "file" else place)

    @dg.asset
    def model(workshop: PipelineResources) -> None: ...

    defs = dg.Definitions([model], resources={"workshop": checked(PipelineResources())})
    with dg.DagsterInstance.ephemeral() as instance:
        with pytest.raises(RecipeError, match=r"^the store /.* cannot be written \(.*\): name another"):
            defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
        assert not instance.get_runs()
