"""Dagster's events of what was forgotten go with their runs, but not under a run that goes on."""

import sqlite3
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from pipeline.assets.operations import dagster_storages
from pipeline.dagster_internals import SqliteEventLogStorage
from pipeline.reports.events import forget


@dg.asset
def first() -> dg.MaterializeResult:  # type: ignore[type-arg]
    return dg.MaterializeResult(metadata={"sample": "a version 0123456789abcdef"})


@dg.asset
def second() -> None:
    """An asset whose events mention nothing."""


@pytest.mark.parametrize("settings", ["dagster.yaml", None])
def test_runs_that_mention_a_mark_go_unless_they_go_on(
    settings: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(SqliteEventLogStorage, "_connect", SqliteEventLogStorage._connect)
    dagster_storages.keep_logs_open()  # as in the process of a run, which has the log of its file open
    if settings:
        (tmp_path / settings).write_text("")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        ended, other = (dg.materialize([one], instance=instance).run_id for one in (first, second))
        going_on = dg.materialize([first], instance=instance).run_id
        run = instance.get_run_by_id(going_on)
        assert run is not None
        instance.add_run(run.with_status(dg.DagsterRunStatus.STARTED)._replace(run_id="going-on"))
        instance.report_engine_event("0123456789abcdef", run_id="going-on", job_name="mine")
    assert forget([]) == ([], [])
    with closing(sqlite3.connect(tmp_path / "history" / "runs" / "index.db")) as ui:  # as `make ui` has it
        assert ui.execute("select count(*) from asset_keys").fetchone() == (2,)
        assert forget(["0123456789abcdef"]) == ([going_on, ended], ["going-on"])
        assert files_with(tmp_path, b"a version 01234") == []
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert {run.run_id for run in instance.get_runs()} == {other, "going-on"}
        assert instance.get_latest_materialization_event(dg.AssetKey("first")) is None
        assert instance.get_latest_materialization_event(dg.AssetKey("second"))
    assert files_with(tmp_path, b"a version 01234") == []


def test_where_dagster_never_ran_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert forget(["0123456789abcdef"]) == ([], []) and not list(tmp_path.iterdir())


def files_with(root: Path, found: bytes) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and found in path.read_bytes()]
