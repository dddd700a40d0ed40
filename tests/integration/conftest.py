"""The code location of a project that has run the job `pretrain`."""

import importlib

import dagster as dg
import pytest

from tests.integration.project import Project


@pytest.fixture
def definitions(finished: Project, monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    finished.enter(monkeypatch)
    return importlib.reload(importlib.import_module("pipeline.definitions")).defs
