"""The engine that a run gets from its recipe."""

import multiprocessing
import shutil
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipeline.assets.graph import definitions
from pipeline.assets.operations.resources import PipelineResources, with_values_of
from pipeline.assets.used_recipe import OWN, RECIPE_TAG
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RECIPES, RecipeError
from pipeline.stages.bpe import TokenizerError
from pipeline.steps.tokens.tokenizer import FrozenTokenizer
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.engines.local import LocalEngine
from pipeline.store.manifest import File, Part
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.system import launch
from trainer.system.paths import STORE_VARIABLE


def test_a_cluster_without_the_package_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe | {"engine": {"kind": "ray"}}))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "mine.yaml"))
    monkeypatch.delitem(sys.modules, "pipeline.store.engines.ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        RecipeError,
        match=r"engine\.kind ray needs the package ray: run `\.venv/bin/pip install -e '\.\[ray\]'",
    ):
        _ = PipelineResources().engine


@pytest.mark.parametrize("name", ["default", "curriculum", "tiny"])
def test_what_a_run_without_settings_of_its_own_counts_as_set_is_what_the_recipe_sets(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a search in a job takes other defaults than the command that shows what it has found."""
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(RECIPES / f"{name}.yaml"))
    recipe = load_recipe(RECIPES / f"{name}.yaml")
    used = with_values_of(recipe, OWN).recipe
    assert used.model_dump(exclude_unset=True) == recipe.model_dump(exclude_unset=True)


def test_no_worker_process_outlives_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    workshop = PipelineResources()
    workshop.engine = LocalEngine(workers=2, processes_pay_above=0)
    before = multiprocessing.active_children()
    assert sorted(workshop.engine.map(abs, range(-4, 0), input_bytes=1, what="test")) == [1, 2, 3, 4]
    assert multiprocessing.active_children() != before
    workshop.teardown_after_execution(dg.build_init_resource_context())
    assert multiprocessing.active_children() == before


@pytest.mark.parametrize("job", ["pretrain", "corpus"])
def test_weights_that_are_not_there_are_told_before_anything_is_made_for_their_training(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    recipe["training"]["pretrained"] = {"path": "nowhere"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "mine.yaml"))
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    made = []

    @dg.asset
    def text(workshop: PipelineResources) -> None:
        made.append(workshop.recipe.name)

    jobs = [dg.define_asset_job(job, [text])]
    defs = dg.Definitions([text], jobs=jobs, resources={"workshop": PipelineResources()})
    with dg.DagsterInstance.ephemeral() as instance:
        run = defs.resolve_job_def(job).execute_in_process
        if job == "pretrain":
            with pytest.raises(dg.DagsterError) as failed:
                run(instance=instance)
            assert f"{tmp_path}/nowhere does not hold *.safetensors" in str(failed.value)
        else:
            assert run(instance=instance).success
    assert made == ([] if job == "pretrain" else ["default"])


def test_the_tokenizer_is_made_of_the_recipes_corpora_before_a_section_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run of everything, as by "Materialize all", and where a section is run alone."""
    recipe = load_recipe(RECIPES / "default.yaml")
    monkeypatch.setenv("GROUNDWORK_RECIPE", "default")
    graph = definitions(OWN).resolve_asset_graph()
    for section in recipe.post_training.sections:
        assert dg.AssetKey("tokenizer") in graph.get(dg.AssetKey([section, "tokenizer"])).parent_keys
        (stage,) = FrozenTokenizer.all_of(recipe.tuned(section))
        with pytest.raises(TokenizerError, match=f"{section} has the recipe's tokenizer.*`pretrain` first"):
            stage.make(Store(tmp_path), LocalEngine())


def own_recipe(directory: Path, patch: pytest.MonkeyPatch) -> None:
    """A recipe with both sections of `post_training`, and an empty store."""
    talks = {"kind": "files", "paths": ["talks.jsonl"], "format": "chat"}
    tuning = {
        "sft": {"corpora": [{"name": "talks", "source": talks}]},
        "dpo": {"corpora": [{"name": "pairs", "source": talks | {"format": "preferences"}}]},
    }
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text()) | {"post_training": tuning}
    (directory / "mine.yaml").write_text(yaml.safe_dump(recipe))
    patch.setenv("GROUNDWORK_RECIPE", str(directory / "mine.yaml"))
    patch.setenv(STORE_VARIABLE, str(directory / "store"))


@pytest.mark.parametrize("elsewhere", [[], [""], ["sft"], ["sft", "dpo"]])
@pytest.mark.parametrize("trained", [["sft"], ["", "sft"], ["sft", "dpo"], ["dpo"], []])
def test_a_section_without_the_model_that_it_goes_on_with_is_told_before_its_data_are_made(
    trained: list[str], elsewhere: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless another run is training that model."""
    own_recipe(tmp_path, monkeypatch)
    made = []

    @dg.asset
    def text(workshop: PipelineResources) -> None:
        made.append(workshop.recipe.name)

    models = {
        section: dg.asset(key=OWN.asset(keys.PRETRAINED_MODEL, section), deps=[text])(lambda: None)
        for section in ("", "sft", "dpo")
    }
    jobs = [
        dg.define_asset_job(name, [text, *(models[section] for section in sections)])
        for name, sections in (("sft", trained), ("align", elsewhere))
    ]
    defs = dg.Definitions([text, *models.values()], jobs=jobs, resources={"workshop": PipelineResources()})
    base, job = {"sft": ("", "pretrain"), "dpo": ("sft", "sft")}.get(next(iter(trained), ""), ("", None))
    missing = None if base in elsewhere else job
    with dg.DagsterInstance.ephemeral() as instance:
        status, tags = dg.DagsterRunStatus.STARTED, {RECIPE_TAG: "default"}
        instance.create_run_for_job(defs.resolve_job_def("align"), status=status, tags=tags)
        if missing is None:
            assert defs.resolve_job_def("sft").execute_in_process(instance=instance).success
        else:
            with pytest.raises(dg.DagsterError) as failed:
                defs.resolve_job_def("sft").execute_in_process(instance=instance)
            said = str(failed.value)
            assert said.startswith(f"{trained[0]} starts from a model that is missing (")
            assert said.endswith(f"run the job {missing} first") and said.count("first") == 1
    assert bool(made) is (missing is None)


@pytest.mark.parametrize("section", ["", "sft"])
def test_a_run_that_is_started_again_goes_on_with_what_each_section_had_read(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_recipe(tmp_path, monkeypatch)
    (corpus, *_) = PipelineResources().of(section).recipe.corpus_names
    store, key = PipelineResources().of(section).store, keys.raw(corpus)
    read = []
    for content in ("before", "after"):
        (tmp_path / content).write_text(content)
        with store.making(Work(key, "test", {}, {"source": content})) as draft:
            assert isinstance(draft, Draft)
            file = shutil.copy(tmp_path / content, draft.path / "documents")
            read.append(draft.publish([Part("0", content, {"documents": File.of(file, draft.path)})]))
    before, after = read

    @dg.asset(key=OWN.asset(key, section))
    def raw() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"fingerprint": before.fingerprint[:16]})

    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.materialize([raw], instance=instance)
        workshop = PipelineResources()
        store = workshop.of(section).store
        assert store.last_used(key) == after
        workshop._take_over(instance, run.run_id)
        assert store.current(key).path == before.path


@pytest.mark.parametrize(
    ("sink", "settings", "installed", "says"),
    [
        ("wandb", {}, False, "training.sinks needs the package wandb: run "),
        ("wandb", {}, True, "training.sinks: wandb finds no key: run `wandb login`"),
        ("wandb", {"WANDB_API_KEY": "k"}, True, None),
        ("wandb", {"WANDB_MODE": "offline"}, True, None),
        ("mlflow", {}, True, "training.sinks: mlflow: set the environment variable MLFLOW_TRACKING_URI"),
        ("mlflow", {"MLFLOW_TRACKING_URI": "sqlite:///x.db"}, True, None),
    ],
    ids=str,
)
def test_a_tracker_that_will_not_open_is_told_before_data_are_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sink: str,
    settings: dict[str, str],
    installed: bool,
    says: str | None,
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE", "NETRC", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    own_recipe(tmp_path, monkeypatch)
    recipe = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    recipe["training"]["sinks"] = [sink]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(launch, "find_spec", lambda _: installed or None)

    @dg.asset
    def text(workshop: PipelineResources) -> None:
        """Stands for the data."""

    jobs = [dg.define_asset_job(job, [text]) for job in ("pretrain", "corpus")]
    defs = dg.Definitions([text], jobs=jobs, resources={"workshop": PipelineResources()})
    with dg.DagsterInstance.ephemeral() as instance:
        for job, told in (("pretrain", 1), ("corpus", 0)):
            run = defs.resolve_job_def(job).execute_in_process(instance=instance)
            said = [entry.user_message for entry in instance.all_logs(run.run_id)]
            warned = [one for one in said if "training.sinks" in one]
            assert (says or "training.sinks") in "".join(warned) or not (says and told)
            assert bool(warned) == bool(says and told)


def test_a_run_of_a_variant_that_is_not_there_fails_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of the run shows the error first that the run failed with."""
    own_recipe(tmp_path, monkeypatch)
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        job = definitions(OWN, dg.in_process_executor).resolve_job_def("pretrain")
        failed = job.execute_in_process(
            instance=instance, raise_on_error=False, tags={"dagster/partition": "nowhere"}
        )
        (event,) = [one for one in failed.all_events if one.is_run_failure]
        assert event.job_failure_data.error
        assert event.job_failure_data.error.message.partition(": ")[2].strip() == (
            f"{tmp_path / 'mine.yaml'}: no variant is named 'nowhere'; choose from base, sft, dpo"
        )
