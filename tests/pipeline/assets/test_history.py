"""The storage that dagster_home/dagster.yaml names, beside Dagster's own on the same files."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest

from pipeline.assets.operations.history import EventLog

SHIPPED = Path(__file__).parents[3] / "dagster_home" / "dagster.yaml"


@dg.asset(check_specs=[dg.AssetCheckSpec("whole", asset="made")])
def made() -> dg.MaterializeResult:
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    shutil.copy(SHIPPED, tmp_path)
    return tmp_path


def test_dagsters_own_storage_reads_what_it_wrote_and_it_reads_what_that_wrote(home: Path) -> None:
    (home / "own").mkdir()
    (home / "own" / "dagster.yaml").write_text(f"storage: {{sqlite: {{base_dir: {home}}}}}")
    from_config = dg.DagsterInstance.from_config
    with from_config(str(home)) as ours, from_config(str(home / "own")) as own:
        assert isinstance(ours.event_log_storage, EventLog)
        assert not isinstance(own.event_log_storage, EventLog)
        for writer, reader in ((ours, own), (own, ours), (ours, own)):
            run = dg.materialize([made], instance=writer)
            record = reader.get_latest_materialization_event(made.key)
            assert record is not None and record.run_id == run.run_id
            assert reader.all_logs(run.run_id) == writer.all_logs(run.run_id)
            check = reader.event_log_storage.get_latest_asset_check_execution_by_key(made.check_keys)
            assert [one.run_id for one in check.values()] == [run.run_id]


def test_events_of_several_threads_are_all_recorded(home: Path) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance, ThreadPoolExecutor(4) as threads:

        def report(number: int) -> None:
            instance.report_runless_asset_event(dg.AssetMaterialization(made.key, metadata={"n": number}))

        list(threads.map(report, range(40)))
        records = instance.fetch_materializations(made.key, limit=100).records
        found = [
            one.asset_materialization.metadata["n"].value for one in records if one.asset_materialization
        ]
        assert sorted(map(int, found)) == list(range(40))


def test_wiped_runs_leave_a_log_that_takes_new_ones(home: Path) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        dg.materialize([made], instance=instance)
        instance.wipe()
        assert instance.get_latest_materialization_event(made.key) is None
        again = dg.materialize([made], instance=instance)
        record = instance.get_latest_materialization_event(made.key)
        assert record is not None and record.run_id == again.run_id
