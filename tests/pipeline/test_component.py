"""Recipes as components of a Dagster project of somebody else's."""

import importlib
import logging
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import dagster as dg
import pytest
import yaml

import pipeline
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.component import RecipeComponent, RecipeScaffolder
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.stages import compiled
from tests.foreign_project import ForeignProject, tiny
from tests.integration.project import ROOT, until
from trainer.system import terminal
from trainer.system.paths import STORE_VARIABLE

Load = Callable[[], dg.Definitions]


@pytest.fixture
def project(tmp_path: Path) -> ForeignProject:
    return ForeignProject(tmp_path / "project")


@pytest.fixture
def load(project: ForeignProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Loads the project as a server does, while GROUNDWORK_RECIPE names something else."""
    monkeypatch.syspath_prepend(str(project.source))
    monkeypatch.setenv(RECIPE_VARIABLE, str(tmp_path / "nowhere.yaml"))
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))

    def loaded() -> dg.Definitions:
        forget()
        found = dg.load_from_defs_folder(path_within_project=project.source / "their")
        dg.Definitions.validate_loadable(found)
        return found

    yield loaded
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "their"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def keys_of(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}


def test_two_recipes_and_an_asset_of_the_project_share_a_code_location(
    project: ForeignProject, load: Load, tmp_path: Path
) -> None:
    recipe = tiny(tmp_path / "text", "same_name")
    project.add("mine", recipe, key_prefix="mine")
    hotter = {"variants": {"hot": {"training": {"seed": 9}}}}
    project.add("other", {**recipe, **hotter}, key_prefix="other", pool="b")
    defs = load()
    repository = defs.get_repository_def()
    repository.load_all_definitions()

    ours, theirs = ({key for key in keys_of(defs) if key.startswith(name)} for name in ("mine/", "other/"))
    assert {"mine/corpora/topics/raw", "mine/checkpoint", "mine/leaderboard"} <= ours
    assert {key.removeprefix("mine/") for key in ours} == {key.removeprefix("other/") for key in theirs}
    assert keys_of(defs) - ours - theirs == {"model_report"}
    assert {"mine_pretrain", "other_pretrain", "mine_evaluate", "other_verify"} <= set(repository.job_names)
    assert {"mine_run_failed", "other_run_failed"} <= {one.name for one in repository.sensor_defs}
    assert set(repository.get_top_level_resources()) == {"mine_workshop", "other_workshop"}
    graph = defs.resolve_asset_graph()
    checkpoints = graph.get(dg.AssetKey(["other", "checkpoint"])).partitions_def
    assert isinstance(checkpoints, dg.DynamicPartitionsDefinition) and checkpoints.name == "other_checkpoints"
    for name, pool in (("mine", "gpu"), ("other", "b")):
        assert graph.get(dg.AssetKey([name, "pretrained_model"])).pools == {pool}
        assert defs.resolve_job_def(f"{name}_pretrain").tags["groundwork/recipe"] == name
    assert graph.get(dg.AssetKey(["mine", "dedup"])).owners == ["team:language"]
    hot = graph.get(dg.AssetKey(["other", "pretrained_model"])).partitions_def
    assert hot and hot.get_partition_keys() == ["base", "hot"]
    assert not graph.get(dg.AssetKey(["mine", "pretrained_model"])).partitions_def


def test_what_takes_a_while_is_said_in_the_log(
    project: ForeignProject,
    load: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(compiled, "announced", nullcontext)
    monkeypatch.setattr(terminal, "_screen", terminal._Screen())
    project.add("mine", tiny(tmp_path / "text", "mine"), key_prefix="mine")
    load()
    with caplog.at_level(logging.INFO, "pipeline"), compiled.announced("pii"):
        until(lambda: "compiling kernels: pii (first run on this machine only)" in caplog.text, 60)


def test_a_run_of_one_recipe_uses_that_recipe_and_tells_whose_it_is(
    project: ForeignProject, load: Load, tmp_path: Path
) -> None:
    recipe = tiny(tmp_path / "text", "mine")
    project.add("other", {**recipe, "name": "other"}, key_prefix="other")
    mine = project.add("mine", recipe, key_prefix="mine")
    defs = load()
    mine.write_text("name: changed since")
    topics = dg.AssetKey(["other", "corpora", "topics", "raw"])
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        job = defs.resolve_job_def("other_corpus")
        result = job.execute_in_process(instance=instance, asset_selection=[topics])
        run = instance.get_run_by_id(result.run_id)
        assert run is not None and run.tags["groundwork/recipe"] == "other"
        assert UsedRecipe(Path("x/recipe.yaml"), "other").owns(run)
        assert not UsedRecipe(Path("x/recipe.yaml"), "mine").owns(run)
        # the alerts of `other.yaml` without a prefix are not those of the prefix `other`
        assert not UsedRecipe(Path("other.yaml")).owns(run)
        assert instance.get_latest_materialization_event(topics)
        assert any("of other begins" in entry.message for entry in instance.all_logs(run.run_id))


def test_a_recipe_that_cannot_be_read_is_one_asset_that_says_why(
    project: ForeignProject, load: Load, tmp_path: Path
) -> None:
    recipe = tiny(tmp_path / "text", "mine")
    project.add("mine", recipe, key_prefix="mine")
    path = project.add("other", {**recipe, "quality": "novels"}, key_prefix="other")
    defs = load()
    made = {key.to_user_string() for key in defs.resolve_asset_graph().materializable_asset_keys}
    (broken,) = (key for key in made if key.startswith("other/"))
    assert {"mine/dedup", "model_report"} <= made
    asset = defs.get_assets_def(dg.AssetKey(broken.split("/")))
    assert f"{path}: quality" in (asset.get_asset_spec().description or "")
    result = dg.materialize([asset], raise_on_error=False)
    failure = result.failure_data_for_node(asset.op.name)
    assert failure and failure.user_failure_data
    assert f"{path}: quality" in (failure.user_failure_data.description or "")


def test_two_recipes_with_one_prefix_are_one_sentence(
    project: ForeignProject, load: Load, tmp_path: Path
) -> None:
    recipe = tiny(tmp_path / "text", "mine")
    folders = [project.add(name, recipe).parent for name in ("mine", "other")]
    sentences = [
        f"{folder / 'defs.yaml'}: 2 recipes of this project have the key_prefix ''" for folder in folders
    ]
    assert any(one.startswith(sentence) for one in said_by(load) for sentence in sentences)


@pytest.mark.parametrize("prefix", ["my-corpora", "größer"])
def test_a_prefix_that_begins_no_name_is_told_in_words(
    project: ForeignProject, load: Load, tmp_path: Path, prefix: str
) -> None:
    project.add("mine", tiny(tmp_path / "text", "mine"), key_prefix=prefix)
    said = "\n".join(said_by(load))
    assert "key_prefix" in said
    assert (
        f"must be letters from A to Z, of either case, digits and `_`, such as `mine`, not '{prefix}'" in said
    )
    assert "pattern" not in said and "regex" not in said


@pytest.mark.parametrize("prefix", ["sft", "dpo"])
def test_a_prefix_that_is_a_section_of_the_recipe_beside_it_is_one_sentence(
    project: ForeignProject, load: Load, tmp_path: Path, prefix: str
) -> None:
    """Their assets would have the same keys, so that no recipe of the project could be loaded."""
    project.add("other", tiny(tmp_path / "text", "other"), key_prefix=prefix)
    assert f"'{prefix}' begins the keys of a section of `post_training`" in "\n".join(said_by(load))


@pytest.mark.parametrize(
    "attribute, given, words",
    [
        ("pool", "", "pool\n  Value error, must be a name without spaces, such as `gpu`, not ''"),
        ("pool", "a b", "must be a name without spaces, such as `gpu`, not 'a b'"),
        ("recipe", "", "recipe\n  Value error, must name the YAML file of a recipe"),
        ("key_prefix", "2024", "key_prefix\n  Value error, must be text, and Dagster reads 2024 as a value"),
        ("pool", "None", "must be text, and Dagster reads None as a value"),
    ],
)
def test_an_attribute_that_means_nothing_is_told_in_words(
    project: ForeignProject, load: Load, tmp_path: Path, attribute: str, given: str, words: str
) -> None:
    """Without a pool two trainings would share a GPU; without a recipe that of GROUNDWORK_RECIPE was used."""
    defs_file = project.add("mine", tiny(tmp_path / "text", "mine")).with_name("defs.yaml")
    component = yaml.safe_load(defs_file.read_text())
    component["attributes"][attribute] = given
    defs_file.write_text(yaml.safe_dump(component))
    assert words in "\n".join(said_by(load))


def test_a_recipe_that_is_not_there_is_named_with_the_file_that_names_it(
    project: ForeignProject, load: Load, tmp_path: Path
) -> None:
    path = project.add("other", tiny(tmp_path / "text", "other"), key_prefix="other")
    path.unlink()
    spec = load().get_assets_def(dg.AssetKey(["other", "unreadable_recipe"])).get_asset_spec()
    assert f"{path}: no such recipe; name another in `recipe` of defs.yaml" in (spec.description or "")


def said_by(load: Load) -> list[str]:
    """What stops the project from being loaded, with what that came from."""
    with pytest.raises(Exception) as raised:
        load()
    error: BaseException | None = raised.value
    said = []
    while error:
        said.append(str(error))
        error = error.__cause__ or error.__context__
    return said


@pytest.mark.parametrize(
    "called, name, prefix",
    [
        ("new", "new", "new"),
        ("My-Corpora", "my-corpora", "My_Corpora"),
        ("größer als", "gr-er-als", "gr_er_als"),
        ("2024", "2024", "my_2024"),
        ("1e5", "1e5", "my_1e5"),
        ("None", "none", "my_None"),
        ("sft", "sft", "my_sft"),
    ],
)
def test_the_command_that_scaffolds_writes_a_component_and_a_recipe_that_loads(
    project: ForeignProject, load: Load, called: str, name: str, prefix: str
) -> None:
    folder = project.defs / called
    folder.mkdir()
    request = dg.ScaffoldRequest("pipeline.RecipeComponent", folder, "yaml", project.directory, None)
    RecipeScaffolder().scaffold(request)
    assert load_recipe(folder / "recipe.yaml").name == name
    assert f"{prefix}/corpora/notes/raw" in keys_of(load())


def test_dg_finds_the_component_and_no_command_pays_for_dagster() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (module,) = settings["project"]["entry-points"]["dagster_dg_cli.registry_modules"].values()
    found = importlib.import_module(module)
    assert found is pipeline and "RecipeComponent" in dir(found)
    assert found.RecipeComponent is RecipeComponent
    look = "import sys, pipeline; dir(pipeline); assert 'dagster' not in sys.modules"
    subprocess.run([sys.executable, "-c", look], check=True)


def test_commands_that_a_page_shows_name_the_recipe_where_the_environment_does_not() -> None:
    said = "see `python -m pipeline verify`"
    assert UsedRecipe().meant(said) == said
    own = UsedRecipe(Path("/a b/recipe.yaml"), "mine").meant(said)
    assert own == "see `GROUNDWORK_RECIPE='/a b/recipe.yaml' python -m pipeline verify`"
