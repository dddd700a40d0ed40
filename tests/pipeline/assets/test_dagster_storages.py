"""Dagster's events with the index of all runs kept open, beside Dagster's own way on the same files."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import dagster as dg
import pytest
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from pipeline.assets.operations import dagster_storages


@dg.asset(check_specs=[dg.AssetCheckSpec("whole", asset="made")])
def made() -> dg.MaterializeResult:
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])


@pytest.fixture(autouse=True)
def kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteEventLogStorage, "_connect", SqliteEventLogStorage._connect)
    dagster_storages.keep_logs_open()


class Own(SqliteEventLogStorage):
    """As Dagster has it."""

    _connect = dagster_storages._open_each_time


def test_dagsters_own_storage_reads_what_it_wrote_and_it_reads_what_that_wrote(tmp_path: Path) -> None:
    local = dg.DagsterInstance.local_temp
    with local(str(tmp_path)) as ours, local(str(tmp_path)) as own:
        own.event_log_storage.__class__ = Own
        for writer, reader in ((ours, own), (own, ours), (ours, own)):
            run = dg.materialize([made], instance=writer)
            record = reader.get_latest_materialization_event(made.key)
            assert record is not None and record.run_id == run.run_id
            assert reader.all_logs(run.run_id) == writer.all_logs(run.run_id)
            check = reader.event_log_storage.get_latest_asset_check_execution_by_key(made.check_keys)
            assert [one.run_id for one in check.values()] == [run.run_id]


def test_who_watches_a_run_hears_of_its_events_while_its_file_is_open(tmp_path: Path) -> None:
    local = dg.DagsterInstance.local_temp
    with local(str(tmp_path)) as ours, local(str(tmp_path)) as own:
        own.event_log_storage.__class__ = Own  # as in the process of the UI
        run = dg.materialize([made], instance=ours)
        heard: SimpleQueue[str] = SimpleQueue()
        own.event_log_storage.watch(run.run_id, None, lambda event, _: heard.put(event.message))
        ours.report_engine_event("one more", ours.get_run_by_id(run.run_id))
        while heard.get(timeout=10) != "one more":
            pass


def test_events_of_several_threads_are_all_recorded(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance, ThreadPoolExecutor(4) as threads:

        def report(number: int) -> None:
            instance.report_runless_asset_event(dg.AssetMaterialization(made.key, metadata={"n": number}))

        list(threads.map(report, range(40)))
        records = instance.fetch_materializations(made.key, limit=100).records
        found = [
            one.asset_materialization.metadata["n"].value for one in records if one.asset_materialization
        ]
        assert sorted(map(int, found)) == list(range(40))


def test_wiped_runs_leave_a_log_that_takes_new_ones(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        dg.materialize([made], instance=instance)
        instance.wipe()
        assert instance.get_latest_materialization_event(made.key) is None
        again = dg.materialize([made], instance=instance)
        record = instance.get_latest_materialization_event(made.key)
        assert record is not None and record.run_id == again.run_id
