"""The engine that a run gets from its recipe."""

import sys
from pathlib import Path

import pytest
import yaml

from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import RECIPES, RecipeError


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
