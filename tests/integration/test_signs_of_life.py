"""A person who starts a run always sees what it does, and a log has lines alone."""

import sys
from pathlib import Path

import pytest

from tests.integration.project import PATIENCE, Project, make_project
from tests.pseudo_terminal import CTRL_C, InTerminal

SILENCE_SECONDS = 2.0 * PATIENCE  # other tests run meanwhile


def started(project: Project) -> InTerminal:
    dagster = str(Path(sys.executable).with_name("dagster"))
    return InTerminal(
        [dagster, "job", "execute", "-j", "pretrain"], 120, project.environment(), project.directory
    )


@pytest.mark.slow
def test_a_run_in_a_terminal_is_never_silent_and_goes_on_after_ctrl_c(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    with started(project) as stopped:
        stopped.until(lambda _: stopped.seen("training", "loss", " left"))
        stopped.press(CTRL_C)
        assert stopped.to_the_end() != 0
    said = "".join(stopped.lines)
    assert "STOPPED: saved at step" in said, stopped.lines
    assert "Traceback" not in said, stopped.lines
    assert not any("█" in line or "░" in line for line in stopped.lines)

    with started(project) as finished:
        assert finished.to_the_end() == 0
    for run in (stopped, finished):
        begun = next(n for n, screen in enumerate(run.screens) if "preparing the run" in screen[-1])
        between = zip(run.times[begun:], run.times[begun + 1 :], strict=False)
        assert max(after - before for before, after in between) < SILENCE_SECONDS
    shown = stopped.screens + finished.screens
    for what in (
        "preparing the run",
        "starting the trainer",
        "corpora/topics/raw",
        "training",
        "exported_model",
    ):
        assert any(what in screen[-1] for screen in shown), what
    # the bar says it
    assert not any("tokens: loss" in line for line in finished.lines)
    assert any("tokens: validation loss" in line for line in finished.lines)
    assert finished.lines[-1] == ""


@pytest.mark.slow
def test_without_a_terminal_there_is_not_one_carriage_return(tmp_path: Path) -> None:
    status, said = make_project(tmp_path).run()
    assert status == 0
    assert not {"\r", "\x1b", "█", "⠋"} & {*said}
    assert "starting the trainer\n" in said and "tokens: loss" in said
