"""Projects that the tests of whole runs start from."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.project import TRAINING, Project, conversations, preferences, python_topics


@pytest.fixture(scope="session")
def make_project() -> Callable[[Path], Project]:
    """A project on the standard library's documentation (two sources, small parts) in a directory."""

    def make(directory: Path) -> Project:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "topics.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(document) + "\n" for document in python_topics())
        recipe = {
            "name": "tiny",
            "corpora": [
                {"name": "topics", "source": {"kind": "files", "paths": [str(directory / "topics.jsonl")]}},
                {"name": "stdlib", "source": {"kind": "python_docs", "max_bytes": 300_000}},
            ],
            "raw": {"part_bytes": 100_000},
            "quality": "docs",
            "tokenizer": {"vocab_size": 512},
            "shards": {"validation_fraction": 0.1},
            "training": copy.deepcopy(TRAINING),  # a test may change its own
        }
        return Project(directory, recipe)

    return make


@pytest.fixture(scope="session")
def make_chat_project(make_project: Callable[[Path], Project]) -> Callable[[Path], Project]:
    """A project whose model is taught to answer, and which of two answers is better."""

    def make(directory: Path) -> Project:
        project = make_project(directory)
        project.recipe["tokenizer"]["chat"] = True
        sections = {"sft": ("chat", conversations()), "dpo": ("preferences", preferences())}
        for section, (form, rows) in sections.items():
            path = directory / f"{form}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            source = {"kind": "files", "paths": [str(path)], "format": form}
            project.recipe.setdefault("post_training", {})[section] = {
                "corpora": [{"name": f"{section}_words", "source": source}],
                "training": {"optimizer": {"lr": 3e-3 if section == "sft" else 3e-4}},
            }
        project.recipe["post_training"]["sft"]["rehearsal"] = 0.2
        return project

    return make


@pytest.fixture(scope="session")
def finished(make_project: Callable[[Path], Project], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose job ran to its end."""
    project = make_project(tmp_path_factory.mktemp("finished"))
    status, said = project.run()
    assert status == 0, said
    return project
