"""A program in the place of the trainer, which reports to Dagster what a test gives it."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipeline.assets import trainer_process
from pipeline.assets.asset import user_errors_as_failures
from pipeline.assets.used_recipe import CHECKPOINT, OWN
from pipeline.recipe.sections import LaunchParams
from pipeline.steps.training import plan
from pipeline.steps.training.launcher import Launcher
from pipeline.store.store import Store
from tests.pipeline.steps.training.test_plan import recipe

BEGIN = """import json, os, signal, sys, time
from pathlib import Path
attempts = Path(__file__).with_name("attempts")
attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
attempt = len(attempts.read_text())
"""
LAST = {
    "kind": "checkpoint",
    "step": 32,
    "tokens": 16_384,
    "loss": 5.0,
    "validation_loss": 5.0,
    "perplexity": 148.4,
    "bits_per_byte": 3.0,
    "data_version": "v",
    "path": "/x",
}
KEY = OWN.asset(CHECKPOINT)
Train = Callable[..., dg.ExecuteInProcessResult]


def sends(*messages: dict[str, Any], after_each: str = "pass") -> str:
    """Python that reports these to Dagster as the trainer does, without what the trainer imports."""
    return f"""from dagster_pipes import open_dagster_pipes
with open_dagster_pipes() as reporter:
    for message in json.loads({json.dumps(json.dumps(messages))}):
        reporter.report_custom_message(message)
        {after_each}
"""


@pytest.fixture(scope="module")
def store(two_corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    directory = tmp_path_factory.mktemp("followed")
    shutil.copytree(two_corpora, directory, dirs_exist_ok=True)
    return Store(directory / "store")


@pytest.fixture
def trains(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Follows a program in the place of the trainer; its attempts are noted beside it."""
    monkeypatch.setattr(trainer_process, "ASK_SECONDS", 0.1)

    def train_with(
        program: str,
        instance: dg.DagsterInstance,
        *under: str,
        wrapper: Sequence[str] = (),
        check_claim: Callable[[], None] = lambda: None,
    ) -> dg.ExecuteInProcessResult:
        script = tmp_path / "program.py"
        script.write_text(BEGIN + program)
        command = (sys.executable, *under, str(script))
        monkeypatch.setattr("trainer.system.launch.command", lambda *_, **__: command)
        params = LaunchParams(kind="command", command=(*wrapper, *command)) if wrapper else LaunchParams()
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
        run = plan.plan(store, recipe())

        @dg.asset
        @user_errors_as_failures
        def model(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
            trainer_process.TrainerProcess(context, run, Launcher(params, 1), OWN).train(check_claim)
            return dg.MaterializeResult()

        return dg.materialize([model], instance=instance, raise_on_error=False)

    return train_with


def entry(instance: dg.DagsterInstance) -> dg.AssetMaterialization:
    (record,) = instance.fetch_materializations(KEY, limit=2).records
    assert record.asset_materialization
    return record.asset_materialization
