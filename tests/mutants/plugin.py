"""What the runs of the mutation tester need inside pytest.

In the measured run, coverage.py is told which test runs, in this process and, by the environment, in those
that it starts. In the run of a mutant, only the chosen tests run, in the order in which they were chosen.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

RUNNING = "GROUNDWORK_MUTANTS_RUNNING"  # the test, for the context of a subprocess
CHOSEN = "GROUNDWORK_MUTANTS_CHOSEN"  # a file, a JSON list of tests
FAILED = "GROUNDWORK_MUTANTS_FAILED"  # a file to write, a JSON list of tests
MEASURED = "GROUNDWORK_MUTANTS_MEASURED"  # a file to write: seconds by test, of those that pass

_seconds: dict[str, float] = {}
_failed: set[str] = set()
_passed: set[str] = set()


def _runs(name: str) -> None:
    """Lines are executed for `name` from now on; a test, or a file for what its tests share."""
    if MEASURED in os.environ:
        from coverage import Coverage

        os.environ[RUNNING] = name
        if (running := Coverage.current()) is not None:
            running.switch_context(name)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _runs(item.nodeid)
    result = yield
    _runs("")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    before = os.environ.get(RUNNING, "")
    if fixturedef.scope != "function":
        _runs(before.partition("::")[0])
    try:
        return (yield)
    finally:
        _runs(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHOSEN in os.environ:
        chosen = json.loads(Path(os.environ[CHOSEN]).read_text())
        place = {
            name: number for number, name in enumerate(chosen)
        }  # of tests, and of files for all of theirs
        for item in items:
            place.setdefault(item.nodeid, place.get(item.nodeid.partition("::")[0], -1))
        items[:] = sorted(
            (item for item in items if place[item.nodeid] >= 0), key=lambda item: place[item.nodeid]
        )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _failed.add(report.nodeid)
    if report.when == "call" and report.passed:
        _passed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if FAILED in os.environ:
        Path(os.environ[FAILED]).write_text(json.dumps(sorted(_failed)))
    if MEASURED in os.environ:
        if hasattr(session.config, "workerinput"):  # a process of xdist ends without Python's exit handlers
            from coverage import Coverage

            if (running := Coverage.current()) is not None:
                running.save()
        else:
            passed = {name: _seconds[name] for name in _passed - _failed}
            Path(os.environ[MEASURED]).write_text(json.dumps(passed))
