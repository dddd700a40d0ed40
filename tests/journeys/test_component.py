"""docs/deployment.md, "In your own Dagster project": a scaffolded recipe is filled in, run and built upon."""

from pathlib import Path
from pydoc_data.topics import topics

import dagster as dg
import pytest
import yaml

from pipeline.component import RecipeScaffolder
from tests.foreign_project import ForeignProject
from tests.integration.project import TRAINING

pytestmark = pytest.mark.slow
CARD = """import dagster as dg
from transformers import AutoModelForCausalLM


@dg.asset(deps=[dg.AssetKey(["mine", "exported_model"])])
def model_report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    event = context.instance.get_latest_materialization_event(dg.AssetKey(["mine", "exported_model"]))
    path = event.asset_materialization.metadata["path"].value
    model = AutoModelForCausalLM.from_pretrained(path)
    return dg.MaterializeResult(metadata={"path": path, "parameters": model.num_parameters()})
"""


def test_a_scaffolded_recipe_runs_as_a_job_and_an_asset_of_the_project_opens_its_model(
    tmp_path: Path,
) -> None:
    project = ForeignProject(tmp_path)
    (project.defs / "report.py").write_text(CARD)
    folder = project.defs / "mine"
    folder.mkdir()
    request = dg.ScaffoldRequest("pipeline.RecipeComponent", folder, "yaml", project.directory, None)
    RecipeScaffolder().scaffold(request)
    (folder / "texts").mkdir()
    for name, text in topics.items():
        (folder / "texts" / f"{name}.txt").write_text(text)
    recipe = folder / "recipe.yaml"
    smaller = {"tokenizer": {"vocab_size": 512}, "training": TRAINING}
    recipe.write_text(yaml.safe_dump(yaml.safe_load(recipe.read_text()) | smaller))
    job = ("dagster", "job", "execute", "-m", "their.definitions", "-j", "mine_pretrain")
    project.said(*job)
    project.said("dagster", "asset", "materialize", "-m", "their.definitions", "--select", "model_report")
    with dg.DagsterInstance.from_config(str(project.home)) as instance:

        def metadata(*key: str) -> dict[str, object]:
            event = instance.get_latest_materialization_event(dg.AssetKey(key))
            return {name: one.value for name, one in event.asset_materialization.metadata.items()}

        opened, exported = metadata("model_report"), metadata("mine", "exported_model")
        assert opened["path"] == exported["path"]
        assert f"Model        {exported['path']}\n" in project.said(
            "pipeline", "summary", GROUNDWORK_RECIPE=str(recipe)
        )
        assert f"{opened['parameters']:,}" in (Path(str(exported["path"])) / "README.md").read_text()
        project.said(*job)
        assert metadata("mine", "pretrained_model")["reused"] is True
