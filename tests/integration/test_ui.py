"""The cockpit as a person uses it: a real `dagster dev` in a real browser."""

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.browser import chromium
from tests.integration.project import Project, make_project, until
from tests.journeys.test_stopped import trainers

STEPS = 500
SHOTS = os.environ.get("GROUNDWORK_SHOTS")  # a directory for pictures of what the test saw

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Cockpit:
    """A browser on a project's `dagster dev`."""

    def __init__(self, project: Project, instance: dg.DagsterInstance, address: str, page: Any):
        self.project, self.instance, self.address, self.page = project, instance, address, page

    def open(self, path: str) -> None:
        self.page.goto(f"{self.address}{path}")

    def press(self, name: str) -> None:
        self.page.locator("button", has_text=re.compile(f"^{name}")).first.click()

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    def picture(self, name: str) -> None:
        if SHOTS:
            self.page.wait_for_timeout(3000)
            self.page.screenshot(path=Path(SHOTS) / f"{name}.png")

    def newest_run(self) -> dg.DagsterRun:
        return self.instance.get_runs(limit=1)[0]

    def launch(self, job: str) -> dg.DagsterRun:
        """Presses the button in the Launchpad."""
        before = self.newest_run().run_id
        self.open(f"/locations/pipeline.definitions/jobs/{job}/playground")
        self.press("Launch Run")
        self.until(lambda: self.newest_run().run_id != before, 60)
        return self.newest_run()

    def until(self, reached: Callable[[], bool], seconds: float) -> None:
        until(reached, seconds, lambda: [(run.job_name, run.status) for run in self.instance.get_runs()])

    def ended(self, run: dg.DagsterRun) -> Callable[[], bool]:
        return lambda: (found := self.instance.get_run_by_id(run.run_id)) is not None and found.is_finished

    def status(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        found = self.instance.get_run_by_id(run.run_id)
        assert found
        return found.status

    def checkpoints(self) -> list[str]:
        return sorted(self.instance.get_dynamic_partitions("checkpoints"))


@pytest.fixture
def cockpit(tmp_path: Path) -> Iterator[Cockpit]:
    """A project with token shards, and a training that takes about a minute."""
    project = make_project(tmp_path)
    training = project.recipe["training"]
    often = {"checkpoint": {"every_tokens": 25_600, "keep_last": 3}, "evaluation": {"every_tokens": 51_200}}
    project.recipe["training"] = {**training, **often, "max_tokens": STEPS * training["global_batch_tokens"]}
    project.make(job="retokenize")
    with opened(project) as cockpit:
        yield cockpit


@contextmanager
def opened(project: Project) -> Iterator[Cockpit]:
    """A browser on a `dagster dev` of the project."""
    port = free_port()
    with (
        chromium() as browser,
        project.serving("dagster", "dev", "--host", "127.0.0.1", "--port", str(port)) as server,
        dg.DagsterInstance.from_config(str(project.home)) as instance,
    ):
        _wait_for(port, server, project.directory / "server.log")
        page = browser.new_page(viewport={"width": 1500, "height": 950})
        page.set_default_timeout(120_000)
        yield Cockpit(project, instance, f"http://127.0.0.1:{port}", page)


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 120
    while True:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.5)


def test_a_person_makes_a_stage_stops_a_training_goes_on_and_looks_at_a_checkpoint(cockpit: Cockpit) -> None:
    cockpit.open("/asset-groups")
    for group in ("stdlib", "all_corpora", "token_shards", "model"):
        cockpit.sees(group)

    before = cockpit.newest_run().run_id
    cockpit.open("/assets/corpora/stdlib/quality")
    cockpit.press("Materialize")
    cockpit.until(lambda: cockpit.newest_run().run_id != before, 60)
    made = cockpit.newest_run()
    cockpit.until(cockpit.ended(made), 120)
    assert cockpit.status(made) is dg.DagsterRunStatus.SUCCESS
    cockpit.open(f"/runs/{made.run_id}")
    cockpit.sees("Success")
    cockpit.open("/assets/corpora/stdlib/quality")
    cockpit.sees("verdicts by rule")

    training = cockpit.launch("pretrain")
    cockpit.until(lambda: len(cockpit.checkpoints()) >= 2, 180)
    cockpit.open(f"/runs/{training.run_id}")
    cockpit.press("Terminate")
    cockpit.page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
    stopped = time.monotonic()
    cockpit.until(cockpit.ended(training), 60)
    assert time.monotonic() - stopped < 40
    assert cockpit.status(training) is dg.DagsterRunStatus.CANCELED and not trainers(cockpit.project)
    saved = cockpit.checkpoints()
    assert int(saved[-1].rpartition("-")[2]) < STEPS

    again = cockpit.launch("pretrain")
    # Metrics, as they come; without the filter the list has only those rows that fit the window.
    cockpit.open(f"/runs/{again.run_id}?logs=tokens/s")
    cockpit.sees("tokens/s,")
    cockpit.picture("run")
    cockpit.until(cockpit.ended(again), 300)
    assert cockpit.status(again) is dg.DagsterRunStatus.SUCCESS
    resumed = [
        event.message for event in cockpit.instance.all_logs(again.run_id) if "resumes from" in event.message
    ]
    assert resumed and f"step-{saved[-1].rpartition('-')[2]}" in resumed[0]

    final = cockpit.checkpoints()[-1]
    assert final.endswith(f"{STEPS:08d}")
    cockpit.open(f"/assets/checkpoint?view=partitions&partition={final}")
    cockpit.sees("bits per byte")
    cockpit.open("/assets/checkpoint")
    for shown in (final, "tokens until then", "token_shards / topics"):
        cockpit.sees(shown)
    cockpit.picture("checkpoint")
    cockpit.open("/assets/checkpoint?view=lineage&lineageScope=upstream&lineageDepth=9")
    for upstream in ("tokenizer", "dedup", "quality", "raw"):
        cockpit.sees(upstream)
    cockpit.picture("lineage")
    cockpit.open("/assets/pretrained_model")
    cockpit.sees("from source to tokens")
    cockpit.picture("model")


def test_materialize_all_trains_a_fresh_store_and_only_what_is_on_disk_can_be_evaluated(
    tmp_path: Path,
) -> None:
    with opened(make_project(tmp_path)) as cockpit:
        cockpit.open("/locations/pipeline.definitions/jobs/pretrain/playground")
        cockpit.sees("max_tokens: 16384")  # as the recipe has it
        cockpit.picture("launchpad")
        cockpit.open("/asset-groups")
        cockpit.press("Materialize all")
        cockpit.until(lambda: bool(cockpit.instance.get_runs(limit=1)), 60)
        (run,) = cockpit.instance.get_runs()
        cockpit.until(cockpit.ended(run), 300)
        assert cockpit.status(run) is dg.DagsterRunStatus.SUCCESS
        saved = cockpit.checkpoints()
        assert [key[-8:] for key in saved] == ["00000008", "00000016", "00000024", "00000032"]

        cockpit.open("/locations/pipeline.definitions/jobs/evaluate/partitions")
        for key in saved[-2:]:  # keep_last: 2
            cockpit.sees(key)
        assert not [key for key in saved[:-2] if key in cockpit.page.content()]
        cockpit.picture("evaluate")
        cockpit.open(f"/assets/checkpoint?view=partitions&partition={saved[0]}")
        cockpit.sees("no, deleted")
        cockpit.picture("deleted")
        cockpit.open("/assets/leaderboard")
        cockpit.sees(f"tiny {saved[0][:8]}")
        cockpit.picture("leaderboard")
