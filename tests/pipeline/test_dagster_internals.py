"""Dagster's names that are not public, in the use that the pipeline makes of them: a version of Dagster that
changes one fails here.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import dagster as dg
import pytest

from pipeline import dagster_internals
from pipeline.assets.operations import dagster_storages

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(r"^\s*(?:from|import) dagster\w*(?:\.\w+)*(?:\._| import _)", re.MULTILINE)


@dg.asset
def made() -> None:
    print("a line of the step")


def test_only_one_file_imports_what_dagster_does_not_export() -> None:
    files = [path for package in ("pipeline", "trainer") for path in (ROOT / package).rglob("*.py")]
    private = [path.name for path in files if PRIVATE.search(path.read_text(encoding="utf-8"))]
    assert private == ["dagster_internals.py"]


def test_a_run_that_chooses_no_logger_uses_the_one_that_stands_in_for_dagsters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @dg.logger
    def own(_: dg.InitLoggerContext) -> logging.Logger:
        return logging.getLogger("own")

    monkeypatch.setattr(dagster_internals.default_loggers, "colored_console_logger", own)
    with caplog.at_level(logging.DEBUG, "own"), dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        dg.materialize([made], instance=instance)
    assert any(record.name == "own" and "made" in record.getMessage() for record in caplog.records)


def test_what_a_step_prints_is_mirrored_by_the_function_that_stands_in_for_dagsters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, seen = dagster_internals.compute_logs.execute_posix_tail, []

    @contextmanager
    def own(path: str, stream: IO[bytes]) -> Iterator[object]:
        seen.append(Path(path).suffix)
        with usual(path, stream) as mirrored:
            yield mirrored

    monkeypatch.setattr(dagster_internals.compute_logs, "execute_posix_tail", own)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        dg.materialize([made], instance=instance)
    assert sorted(seen) == [".err", ".out"]


def test_a_run_can_be_given_an_origin_and_lose_a_tag(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        job = dg.Definitions([made], jobs=[dg.define_asset_job("one")]).resolve_job_def("one")
        run = instance.create_run_for_job(job, tags={"waits for": "another", "name": "mine"})
        place = dagster_internals.RegisteredCodeLocationOrigin("here")
        origin = dagster_internals.RemoteJobOrigin(
            dagster_internals.RemoteRepositoryOrigin(place, "__repository__"), "one"
        )
        dagster_storages.write(instance, run._replace(remote_job_origin=origin))
        dagster_storages.remove_run_tag(instance, run.run_id, "waits for")
        stored = instance.get_run_by_id(run.run_id)
        assert stored and stored.remote_job_origin == origin
        assert "waits for" not in stored.tags and stored.tags["name"] == "mine"
        assert not instance.get_runs(dg.RunsFilter(tags={"waits for": "another"}))
