"""A person's folder of text, with a recipe as `init` writes it, whose job ran to its end."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.integration.project import TRAINING, Project, python_topics


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A corpus `notes` of text files, and the model of it."""
    project = Project(tmp_path_factory.mktemp("folder"))
    texts = project.directory / "texts"
    texts.mkdir()
    for row in python_topics():
        (texts / f"{row['id']}.txt").write_text(row["text"], encoding="utf-8")
    project.command("init", "mine.yaml")
    written = yaml.safe_load((project.directory / "mine.yaml").read_text())
    smaller = {"tokenizer": {"vocab_size": 512}, "training": TRAINING, "raw": {"part_bytes": 60_000}}
    project.recipe = written | smaller | {"shards": {"validation_fraction": 0.1}}
    project.make()
    return project


@pytest.fixture
def another(trained_folder: Project, tmp_path: Path) -> Project:
    """A copy of the folder, the recipe and the store, to change."""
    place = tmp_path / "copy"
    shutil.copytree(trained_folder.directory, place, ignore=shutil.ignore_patterns("history"))
    return Project(place, trained_folder.recipe | {})
