"""What a run that cannot start prints in the terminal."""

import sys

import dagster as dg
import pytest

from pipeline.assets.operations.console import explain_on_exit
from pipeline.recipe.recipe import RecipeError


def wrapped(error: Exception) -> dg.DagsterUserCodeExecutionError:
    """As Dagster raises an error of a resource."""
    return dg.DagsterResourceFunctionError(
        "Error executing resource_fn", user_exception=error, original_exc_info=(type(error), error, None)
    )


@pytest.mark.parametrize("error", [RecipeError("say why"), wrapped(RecipeError("say why"))])
def test_a_mistake_in_the_recipe_or_its_overrides_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    explain_on_exit()
    sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == "error: say why\n"


def test_a_signal_before_the_first_step_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    explain_on_exit()
    error = dg.DagsterExecutionInterruptedError()
    sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == "stopped: what is complete is kept, run the job again to resume\n"


def test_any_other_error_keeps_its_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    explain_on_exit()
    error = wrapped(KeyError("ours"))
    sys.excepthook(type(error), error, None)
    assert "DagsterResourceFunctionError: Error executing resource_fn" in capsys.readouterr().err
