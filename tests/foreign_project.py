"""A Dagster project of somebody else's, as `create-dagster project` lays it out, with recipes in it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.integration.project import OURS, ROOT, make_project

DEFINITIONS = """from pathlib import Path

import dagster as dg


@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
REPORT = """import dagster as dg


@dg.asset(deps=[dg.AssetKey([name, "exported_model"]) for name in ("mine", "other")])
def model_report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    exported = {}
    for key in sorted(context.assets_def.asset_deps[context.asset_key]):
        event = context.instance.get_latest_materialization_event(key)
        exported[key.path[0]] = event.asset_materialization.metadata["path"]
    return dg.MaterializeResult(metadata=exported)
"""


class ForeignProject:
    """The package `their` with the asset `model_report`; components are added to it."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.source = directory / "src"
        self.defs = self.source / "their" / "defs"
        self.defs.mkdir(parents=True)
        settings = '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "their"\n'
        (directory / "pyproject.toml").write_text(settings)
        (self.source / "their" / "__init__.py").touch()
        (self.source / "their" / "definitions.py").write_text(DEFINITIONS)
        (self.defs / "report.py").write_text(REPORT)
        self.home = directory / "home"
        self.home.mkdir()
        shutil.copy(ROOT / "dagster_home" / "dagster.yaml", self.home)

    def add(self, name: str, recipe: Mapping[str, Any], **attributes: Any) -> Path:
        """A component of a recipe in a folder of this name. Returns the recipe's path."""
        path = self.defs / name / "recipe.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(dict(recipe)))
        component = {
            "type": "pipeline.RecipeComponent",
            "attributes": {"recipe": path.name, **attributes},
            "post_processing": {"assets": [{"attributes": {"owners": ["team:language"]}}]},
        }
        (path.parent / "defs.yaml").write_text(yaml.safe_dump(component))
        return path

    def said(self, *command: str, **environment: str) -> str:
        """What `python -m COMMAND` says in it."""
        bare = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        ours = {"DAGSTER_HOME": str(self.home), "PYTHONPATH": f"{self.source}:{ROOT}"}
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-m", *command],
            env=bare | ours | environment,
            cwd=self.directory,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout


def tiny(directory: Path, name: str, **changes: Any) -> dict[str, Any]:
    """A small recipe on text in `directory`."""
    return {**make_project(directory).recipe, "name": name, **changes}
