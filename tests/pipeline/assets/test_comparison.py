"""What the UI shows of variants and runs side by side."""

from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipeline.assets.comparison import variant_comparison_asset
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import RECIPE_VARIABLE
from tests.integration.project import TRAINING
from trainer.system.history import STORE_VARIABLE


def test_variants_stand_in_the_table_before_any_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {
        "name": "mine",
        "corpora": [{"name": "docs", "source": {"kind": "files", "paths": ["docs.jsonl"]}}],
        "quality": "docs",
        "training": TRAINING,
        "variants": {"strict": {"quality": "gopher"}},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv(RECIPE_VARIABLE, str(tmp_path / "recipe.yaml"))
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    result = dg.materialize([variant_comparison_asset], resources={"workshop": PipelineResources()})
    (made,) = result.asset_materializations_for_node("variants")
    rows = [record.data for record in made.metadata["variants"].value.records]
    assert [(row["run"], row["done"]) for row in rows] == [("base", "0%"), ("strict", "0%")]
    assert "data:image/png" in made.metadata["curves"].value
