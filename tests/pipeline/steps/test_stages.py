"""The classes of stages: a kernel and a class make a stage."""

import re
import sys
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest
import yaml

from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.pretrained_model import pretrained_model_asset
from pipeline.assets.stages import stage_assets
from pipeline.assets.tokenizer import tokenizer_asset
from pipeline.assets.used_recipe import OWN
from pipeline.assets.variants import VariantPartitions
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.recipe.recipe import Recipe
from pipeline.recipe.variants import load, load_all
from pipeline.steps import stages
from pipeline.steps.corpus.quality import Quality
from pipeline.steps.lineage import record
from pipeline.steps.recipe_versions import RecipeVersions, store_of, table
from pipeline.steps.stages import DATA_STAGES, asset_of, final_assets, made_of_one_corpus
from pipeline.store import keys
from pipeline.store.cleanup import gc
from pipeline.store.keys import Key
from pipeline.store.store import Store, StoreError
from pipeline.store.variant_names import BASE
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import SETTINGS, TEXTS
from trainer.system.paths import STORE_VARIABLE

KEY = Key("lengths", "topics")
MAIL = "Write to jane.doe@gmail.com."


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe(Path("pipeline/recipes/tiny.yaml"))


def test_a_stage_that_the_recipe_does_not_have_is_refused(tmp_path: Path, recipe: Recipe) -> None:
    corpus = recipe.corpus_names[0]
    for key in ("evaluation_ngrams", f"corpora/{corpus}/contamination", f"corpora/{corpus}/filters/own", "x"):
        with pytest.raises(StoreError, match=f"{key} is not a stage of the recipe"):
            RecipeVersions(recipe).find(Store(tmp_path), key)


def test_every_key_of_a_recipe_belongs_to_one_class(recipe: Recipe) -> None:
    found = [stage.key for kind in table() for stage in kind.all_of(recipe)]
    assert len(found) == len(set(found)) and keys.PRETRAINED_MODEL in found
    for kind in stages.all_stages():
        assert all(stages.kind_of(stage.key) is kind for stage in kind.all_of(recipe))
    assert stages.kind_of(Key("training_runs")) is None


def test_an_error_about_a_stage_that_is_no_asset_names_the_asset_that_makes_it(
    tmp_path: Path, recipe: Recipe
) -> None:
    store = Store(tmp_path, RecipeVersions(recipe))
    raw, quality = keys.raw("a"), keys.quality("a")
    for key, asset in ((keys.signals("a"), quality), (keys.filtered("a", "own"), quality), (raw, raw)):
        with pytest.raises(StoreError, match=f"damaged .*: materialize {asset}, which"):
            store.open(key, "0" * 16)
    assert asset_of(keys.signatures("a")) == keys.DEDUP


def test_a_recipe_that_wants_an_index_has_it_as_an_asset_that_no_lineage_records(recipe: Recipe) -> None:
    wanted, corpus = recipe.model_copy(update={"token_index": True}), recipe.corpus_names[0]
    (made,) = [
        one for one in stage_assets(wanted, "pretrain", OWN) if one.key == OWN.asset(keys.token_index(corpus))
    ]
    assert made.asset_deps[made.key] == {OWN.asset(keys.token_shards(corpus))}
    model = pretrained_model_asset(wanted, OWN)
    assert OWN.asset(keys.token_index(corpus)) in model.asset_deps[model.key]  # so that samples are traced
    assert keys.token_index(corpus) in stages.of_recipe(wanted)
    assert keys.token_index(corpus) not in stages.of_data(wanted)
    assert not [one for one in stage_assets(recipe, "pretrain", OWN) if one.key.path[0] == keys.TOKEN_INDEX]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe of one corpus with evaluation sets, and a variant that changes its text and has none."""
    (tmp_path / "exam.txt").write_text("one two three " * 9)
    (tmp_path / "topics").mkdir()
    for number, topic in enumerate(TEXTS[:12]):
        (tmp_path / "topics" / f"{number:02d}.txt").write_text(topic + MAIL)
    settings = {
        "name": "mine",
        "corpora": [{"name": "topics", "source": {"kind": "files", "paths": ["topics/*.txt"]}}],
        "decontamination": {"sets": [{"name": "exam", "source": {"kind": "files", "paths": ["exam.txt"]}}]},
        "tokenizer": {"vocab_size": 300},
        "training": TRAINING,
        "variants": {"plain": {"decontamination": None, "scrub": {"kinds": ["credit_card"]}}},
        **SETTINGS,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv(RECIPE_VARIABLE, str(tmp_path / "recipe.yaml"))
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    return tmp_path / "recipe.yaml"


def retokenize(recipe: Recipe, variant: str = BASE, *chosen: Key) -> dg.ExecuteInProcessResult:
    variants = VariantPartitions(load_all(Path(recipe.file)), OWN)
    assets = [
        *stage_assets(recipe, "corpus", OWN),
        tokenizer_asset(recipe, OWN),
        *stage_assets(recipe, "retokenize", OWN),
    ]
    definitions = dg.Definitions(
        variants.partitioned(assets),  # type: ignore[arg-type]  # a list of any kind of asset
        jobs=[dg.define_asset_job("retokenize", assets)],
        resources={"workshop": PipelineResources()},
        executor=dg.in_process_executor,
    )
    job = definitions.resolve_job_def("retokenize")
    selection = [OWN.asset(key) for key in chosen] or None
    return job.execute_in_process(partition_key=variant, asset_selection=selection)


def test_the_stage_that_contributing_shows_is_an_asset_in_lineage_in_variants_and_kept_by_gc(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path("CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n### a stage\n")[2]
    kernel, row, test = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    assert len((row + test).splitlines()) <= 40
    lengths = ModuleType("pipeline.stages.lengths")
    monkeypatch.setitem(sys.modules, lengths.__name__, lengths)
    monkeypatch.setattr("pipeline.stages.lengths", lengths, raising=False)
    exec(kernel, lengths.__dict__)
    exec(row, names := {"__name__": "pipeline.steps.corpus.lengths"})
    place = DATA_STAGES.index(Quality)
    monkeypatch.setattr(stages, "DATA_STAGES", (*DATA_STAGES[:place], names["Lengths"], *DATA_STAGES[place:]))
    exec(test, found := {})
    found["test_the_characters_of_each_document_are_counted"]()

    recipe = load_recipe(project)
    result = retokenize(recipe)
    (event,) = result.asset_materializations_for_node("corpora__topics__lengths")
    assert KEY in made_of_one_corpus(recipe, "topics") and KEY in final_assets(recipe)
    store = store_of(recipe)
    assert record.of_recipe(store, recipe)["assets"][KEY]["code_version"] == "lengths-1"
    # A variant makes one of its own, from its own text, and also has the stage that only the recipe wants.
    retokenize(recipe, "plain", keys.scrubbed("topics"), keys.EVALUATION_NGRAMS, KEY)
    ours, theirs = (store_of(load(project, name)).current(KEY) for name in (BASE, "plain"))
    assert event.metadata["characters"].value == ours.counts["characters"]
    assert theirs.counts["characters"] == sum(len(topic + MAIL) for topic in TEXTS[:12])
    assert gc.find(store) == []
    project.write_text(yaml.safe_dump(yaml.safe_load(project.read_text()) | {"variants": {}}))
    garbage = {item.paths[0] for item in gc.find(store)}
    assert theirs.path in garbage and ours.path not in garbage
