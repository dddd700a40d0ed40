"""Dagster's events of runs that made or read documents which were forgotten: they show samples and rows."""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import dagster as dg

from pipeline.dagster_internals import SqliteEventLogStorage
from pipeline.store.errors import PipelineError
from trainer.system.paths import dagster_home


def forget(marks: Collection[str]) -> tuple[list[str], list[str]]:
    """Deletes the Dagster runs whose events mention any of the marks, with their events, logs, and what one
    of them made last of an asset. Returns their ids, and those of runs that go on, which stay.
    """
    # Without a dagster.yaml, Dagster keeps its events in `history`; without both, it never ran here.
    if not marks or not any((dagster_home() / name).exists() for name in ("dagster.yaml", "history")):
        return [], []
    with dg.DagsterInstance.from_config(str(dagster_home())) as instance:
        found = [run for run in instance.get_runs() if _mentions(instance, run.run_id, marks)]
        doomed = [run.run_id for run in found if run.is_finished]
        for run in doomed:
            instance.compute_log_manager.delete_logs(prefix=[run])
            instance.delete_run(run)
        stale = [
            record.asset_entry.asset_key
            for record in instance.get_asset_records()
            if record.asset_entry.last_run_id in doomed
        ]
        if stale:
            instance.wipe_assets(stale)
        if isinstance(instance.event_log_storage, SqliteEventLogStorage):
            _erase_deleted(set(instance.get_run_ids()))
        return doomed, [run.run_id for run in found if not run.is_finished]


def _erase_deleted(runs: Collection[str]) -> None:
    """Erases what SQLite keeps of deleted rows: the files of runs that are not among `runs`, and the free
    pages of all other files. A deletion that was killed may have left some of the former.
    """
    for path in dagster_home().glob("history/**/*.db"):
        if path.stem.count("-") == 4 and path.stem not in runs:
            # its log first, which stays where the process of a run was killed
            for file in (*path.parent.glob(f"{path.name}-*"), path):
                file.unlink(missing_ok=True)
        else:
            _vacuum(path)


def _vacuum(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            connection.execute("vacuum")
            # as long as another process has the database open, its log keeps the bytes
            if connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]:
                raise sqlite3.OperationalError("another process is reading it")
    except sqlite3.OperationalError as error:
        raise PipelineError(f"{path}: {error}: close Dagster's UI, and repeat this") from error


def _mentions(instance: dg.DagsterInstance, run: str, marks: Collection[str]) -> bool:
    events = (dg.serialize_value(event) for event in instance.all_logs(run))
    return any(mark in event for event in events for mark in marks)
