"""What a run that cannot start prints in the terminal."""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipeline.assets.asset import StoppedError
from pipeline.assets.operations.console import (
    _message,
    console,
    explain_on_exit,
    keep_output_to_the_end,
    show_activities,
)
from pipeline.dagster_internals import compute_logs
from pipeline.recipe.recipe import RecipeError
from pipeline.stages import compiled
from trainer.system import terminal


def wrapped(error: Exception) -> dg.DagsterUserCodeExecutionError:
    """As Dagster raises an error of a resource."""
    return dg.DagsterResourceFunctionError(
        "Error executing resource_fn", user_exception=error, original_exc_info=(type(error), error, None)
    )


ROOT = Path(__file__).parents[3]
LOGS = yaml.safe_load((ROOT / "dagster_home/dagster.yaml").read_text())["python_logs"]
STOPPED = "stopped: what is complete is kept, run the job again to resume\n"


@pytest.fixture
def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[BaseException], str]:
    """What Python says of an error that ends it."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    explain_on_exit()

    def raised(error: BaseException) -> str:
        sys.excepthook(type(error), error, None)
        return capsys.readouterr().err

    return raised


def test_a_mistake_or_a_signal_before_the_first_step_is_one_line(
    said: Callable[[BaseException], str], capsys: pytest.CaptureFixture[str]
) -> None:
    for mistake in (RecipeError("say why"), wrapped(RecipeError("say why"))):
        assert said(mistake) == "error: say why\n"
    with pytest.raises(SystemExit, match="130"):
        said(dg.DagsterExecutionInterruptedError())
    assert capsys.readouterr().err == STOPPED


def test_settings_in_a_wrong_place_are_named_without_all_that_could_stand_there(
    said: Callable[[BaseException], str],
) -> None:
    @dg.job(logger_defs={})
    def job() -> None: ...

    with pytest.raises(dg.DagsterInvalidConfigError) as refused:
        dg.validate_run_config(job, {"opps": {}})
    assert said(refused.value) == (
        'error: Received unexpected config entry "opps" at the root: settings of the recipe go below '
        "`resources: workshop: config: overrides` (docs/jobs.md)\n"
    )


ASSETS_OF_A_PROJECT = """
import dagster as dg
from pipeline.assets.operations.console import explain_on_exit

explain_on_exit()

@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["base", "hot"]))
def pretrained_model() -> None: ...
"""


@pytest.fixture
def materialize(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`dagster asset materialize` of a project, with these arguments."""

    def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "assets.py").write_text(code)
        shutil.copy(ROOT / "dagster_home" / "dagster.yaml", tmp_path)
        dagster = str(Path(sys.executable).with_name("dagster"))
        command = [dagster, "asset", "materialize", "-f", str(tmp_path / "assets.py"), *arguments]
        environment = os.environ | {"DAGSTER_HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"}
        return subprocess.run(command, env=environment, cwd=ROOT, text=True, capture_output=True, check=False)

    return run


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--select", "pretraned_model"], "['pretraned_model'] were selected"),
        (["--select", "+++"], "Invalid selection string: +++"),
        (["--select", "pretrained_model"], "add `--partition base`, or the name of another variant"),
        (["--select", "pretrained_model", "--partition", "cold"], "the passed partition key `cold`"),
    ],
)
def test_a_mistyped_asset_or_partition_is_named_without_a_stack(
    materialize: Callable[..., subprocess.CompletedProcess[str]], arguments: list[str], why: str
) -> None:
    ended = materialize(ASSETS_OF_A_PROJECT, *arguments)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ") and why in ended.stderr.splitlines()[0]
    assert "Traceback" not in ended.stderr


WITH_CHECKPOINTS = """
from pathlib import Path
import dagster as dg
from pipeline.assets.operations.console import explain_on_exit

explain_on_exit()

@dg.asset
def dedup() -> None: ...

@dg.asset(deps=[dedup])
def tokenizer() -> None:
    Path(__file__).with_name("tokenizer").touch()

saved = dg.DynamicPartitionsDefinition(name="checkpoints")
checkpoint = dg.AssetSpec("checkpoint", deps=[tokenizer], partitions_def=saved)
defs = dg.Definitions([dedup, tokenizer, checkpoint])
"""


def test_a_selection_that_reaches_the_checkpoints_is_told_the_selection_that_can_be_made(
    materialize: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    refused = materialize(WITH_CHECKPOINTS, "--select", "dedup*").stderr
    selections = re.findall("--select '(.*?)'", refused)
    assert selections[0] == "dedup*"
    made = materialize(WITH_CHECKPOINTS, "--select", selections[1])
    assert made.returncode == 0 and (tmp_path / "tokenizer").exists(), made.stderr


def test_any_other_error_keeps_its_stack(said: Callable[[BaseException], str]) -> None:
    assert "DagsterResourceFunctionError: Error executing resource_fn" in said(wrapped(KeyError("ours")))


def test_a_failed_check_is_named_without_a_stack() -> None:
    @dg.asset(check_specs=[dg.AssetCheckSpec("enough_is_kept", asset="quality", blocking=True)])
    def quality() -> Iterator[dg.MaterializeResult]:
        yield dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=False)])

    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.materialize([quality], instance=instance, raise_on_error=False)
        failed = next(entry for entry in run.all_events if entry.is_step_failure)
    said = _message(logging.makeLogRecord({}), failed, None)
    assert said == "FAILED: 1 blocking asset check failed with ERROR severity: quality: enough_is_kept"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (RuntimeError("Could not determine home directory."), "FAILED: RuntimeError: Could not determine"),
        (RecipeError("say why"), ""),  # which is raised once more
    ],
)
def test_a_run_that_fails_before_its_first_step_says_why_once(
    error: Exception, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @dg.resource
    def broken(_: dg.InitResourceContext) -> None:
        raise error

    @dg.op(required_resource_keys={"workshop"})
    def quality() -> None: ...

    @dg.job(logger_defs={"console": console}, resource_defs={"workshop": broken})
    def pretrain() -> None:
        quality()

    pretrain.execute_in_process({"loggers": {"console": {}}}, raise_on_error=False)
    said = capsys.readouterr().err
    assert shown in said and said.count("FAILED") == bool(shown) and "say why" not in said


def test_a_step_that_is_stopped_says_so_once() -> None:
    @dg.asset
    def dedup() -> None:
        raise StoppedError(STOPPED.strip())

    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.materialize([dedup], instance=instance, raise_on_error=False)
        failed = next(entry for entry in run.all_events if entry.is_step_failure)
    assert _message(logging.makeLogRecord({}), failed, None) == f"STOPPED: {STOPPED.strip()[9:]}"


def test_a_trainer_that_was_stopped_before_its_first_message_leaves_no_advice_of_dagsters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Dagster tells the reader to check logs of a process that did what it was told."""

    @dg.op
    def model(context: dg.OpExecutionContext) -> None:
        with dg.open_pipes_session(
            context, dg.PipesEnvContextInjector(), dg.PipesTempFileMessageReader()
        ) as session:
            context.log.info("the trainer begins")
            session.get_bootstrap_env_vars()

    @dg.job(logger_defs={"console": console})
    def train() -> None:
        model()

    train.execute_in_process(run_config={"loggers": {"console": {}}})
    said = capsys.readouterr().err
    assert "the trainer begins" in said and "[pipes]" not in said


def test_what_a_step_says_last_is_shown_on_a_busy_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There `tail` reads late."""
    slow = tmp_path / "tail"
    slow.write_text(f'#!/bin/sh\nsleep 0.5\nexec {shutil.which("tail")} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(compute_logs, "execute_posix_tail", compute_logs.execute_posix_tail)
    keep_output_to_the_end()
    said, shown = tmp_path / "step.err", tmp_path / "shown"
    said.touch()
    # Runs in this process leave SIGTERM ignored where SIGINT is, as in the background of a script.
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with shown.open("wb") as stream, compute_logs.execute_posix_tail(str(said), stream):
        said.write_text("FAILED: say why\n")
    signal.signal(signal.SIGTERM, before)
    assert shown.read_text() == "FAILED: say why\n"


@pytest.mark.parametrize(
    "facts, begins",
    [
        ({"job_name": "__ASSET_JOB"}, "chosen assets     "),
        ({"job_name": "mine_pretrain"}, "mine_pretrain     "),
        ({"job_name": "__ASSET_JOB", "step_key": "corpora__books__raw"}, "corpora/books/raw     "),
    ],
)
def test_a_line_begins_with_what_a_person_calls_the_asset_or_the_job(
    capsys: pytest.CaptureFixture[str], facts: dict[str, str], begins: str
) -> None:
    logger = console(dg.build_init_logger_context())
    logger.info("begins", extra={"dagster_meta": facts})
    assert capsys.readouterr().err[len("12:00:00  ") :].startswith(begins)


def test_an_interrupt_that_comes_where_python_drops_exceptions_stops_the_run_all_the_same() -> None:
    """A run that was canceled as an import ended went on for as long as it took."""
    program = """
import os, signal, time, dagster as dg
from pipeline.assets.operations.console import repeat_lost_interrupts

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

@dg.op
def step():
    Dropped()
    time.sleep(5)
    print("went on")

@dg.job(executor_def=dg.in_process_executor)
def works():
    step()

repeat_lost_interrupts()
with dg.DagsterInstance.ephemeral() as instance:
    run = works.execute_in_process(instance=instance, raise_on_error=False)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "went on" not in done.stdout
    assert "DagsterExecutionInterruptedError" in done.stderr


def test_a_run_of_the_ui_says_in_its_log_that_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_screen", terminal._Screen())
    monkeypatch.setattr(compiled, "announced", compiled.announced)
    show_activities()

    @dg.asset
    def dedup() -> None:
        with compiled.announced("dedup"):
            time.sleep(2)

    with dg.instance_for_test(overrides={"python_logs": LOGS}) as instance:
        run = dg.materialize([dedup], instance=instance).run_id
        said = [entry for entry in instance.all_logs(run) if "compiling" in entry.user_message]
    assert [(entry.step_key, entry.user_message) for entry in said] == [
        ("dedup", "compiling kernels: dedup (first run on this machine only)")
    ]
