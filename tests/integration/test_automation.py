"""A corpus changes, and what depends on it is made again by itself: that corpus, once, and nothing else."""

import copy
import importlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import numpy as np
import pytest

from pipeline.assets.operations import orphaned_runs
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.operations.sensors import CHANGE_TAG
from pipeline.assets.used_recipe import OWN
from pipeline.steps.tokens.shards import prefixes
from pipeline.store import keys
from tests.integration.project import Project, make_project
from trainer.data.shards import Shard

LAST = "zebra"  # in no other document


@dataclass
class Site:
    """A project with its code location loaded in this process: definitions, and the instance they run on."""

    instance: dg.DagsterInstance
    definitions: dg.Definitions
    project: Project

    def change(self) -> None:
        """Takes a document out of the first corpus and adds another."""
        path = self.project.directory / "topics.jsonl"
        documents = [json.loads(line) for line in path.read_text().splitlines()]
        documents[-1] = {"id": "new", "text": documents[20]["text"].replace(" the ", f" {LAST} ")}
        path.write_text(
            "".join(
                json.dumps(document) + "\n" for document in documents if document["id"] != documents[10]["id"]
            )
        )

    def retokenize(self, request: dg.RunRequest | None = None) -> set[str]:
        """Runs the job, on the assets of a request if there is one; what was materialized."""
        job = self.definitions.resolve_job_def("retokenize")
        selection = None if request is None else list(request.asset_selection or [])
        result = job.execute_in_process(
            instance=self.instance, asset_selection=selection, tags={} if request is None else request.tags
        )
        assert result.success
        return {
            "/".join(event.asset_key.path)
            for event in result.get_asset_materialization_events()
            if event.asset_key
        }

    def tick(self) -> dg.SensorResult:
        with dg.build_sensor_context(
            instance=self.instance, resources={"workshop": PipelineResources()}
        ) as context:
            result = self.definitions.resolve_sensor_def("corpora_changed")(context)
        assert isinstance(result, dg.SensorResult)
        return result

    def night(self) -> dg.RunRequest | dg.SkipReason:
        with dg.build_schedule_context(
            instance=self.instance, resources={"workshop": PipelineResources()}
        ) as context:
            result = self.definitions.resolve_schedule_def("nightly_retokenize")(context)
        assert isinstance(result, dg.RunRequest | dg.SkipReason)
        return result


@contextmanager
def located(project: Project) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        project.enter(patch)
        definitions = importlib.reload(importlib.import_module("pipeline.definitions")).defs
        with dg.DagsterInstance.from_config(str(project.home)) as instance:
            yield Site(instance, definitions, project)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Path]:
    """A project whose two corpora were taken to token shards, and a copy of its directory."""
    project = make_project(tmp_path_factory.mktemp("automation") / "project")
    with located(project) as site:
        site.retokenize()
    return project, Path(shutil.copytree(project.directory, project.directory.with_name("kept")))


@pytest.fixture
def site(made: tuple[Project, Path]) -> Iterator[Site]:
    """The project as it was made, whatever another test did to it."""
    project, kept = made
    shutil.rmtree(project.directory)
    shutil.copytree(kept, project.directory)
    with located(Project(project.directory, copy.deepcopy(project.recipe))) as site:
        yield site


def data_versions(project: Project) -> dict[str, str]:
    keys = ["tokenizer", "token_shards/topics", "token_shards/stdlib", "corpora/stdlib/raw"]
    return {key: project.store.current(key).data_version for key in keys}


def ids_in(project: Project, corpus: str) -> set[bytes]:
    version = project.store.current(keys.token_shards(corpus))
    shards = [Shard(prefix) for split in ("train", "validation") for prefix in prefixes(version, split)]
    return {np.asarray(shard.document(i)).tobytes() for shard in shards for i in range(shard.num_documents)}


def test_nothing_is_started_while_every_corpus_is_as_it_was_read(site: Site) -> None:
    tick = site.tick()
    assert not tick.run_requests and "no corpus has changed since it was read" in str(tick.skip_reason)
    assert isinstance(site.night(), dg.SkipReason)


def test_a_changed_corpus_is_made_again_once_and_the_other_is_not_read(site: Site) -> None:
    before, documents = data_versions(site.project), ids_in(site.project, "topics")
    site.change()
    tick = site.tick()
    (request,) = tick.run_requests or []
    assert [event.asset_key for event in tick.asset_events] == [dg.AssetKey(["corpora", "topics", "source"])]
    made = site.retokenize(request)
    chain = {f"corpora/topics/{stage}" for stage in ("raw", "scrubbed", "quality")}
    assert chain <= made and not any(key.startswith("corpora/stdlib/") for key in made)
    after = data_versions(site.project)
    assert {key for key in before if before[key] != after[key]} == {"token_shards/topics"}
    assert len(documents - ids_in(site.project, "topics")) >= 1  # the document that vanished
    again = site.tick()
    assert not again.run_requests and "no corpus has changed since it was read" in str(again.skip_reason)


def test_after_a_change_of_the_recipe_a_change_of_one_corpus_makes_all_by_the_new_recipe(site: Site) -> None:
    site.project.recipe["quality"] = "gopher"
    site.project.write_recipe()
    assert not site.tick().run_requests  # a person decides when to use the new recipe
    site.change()
    (request,) = site.tick().run_requests or []
    made = site.retokenize(request)
    assert {f"corpora/{corpus}/quality" for corpus in ("topics", "stdlib")} <= made
    assert data_versions(site.project)  # the new recipe finds shards of its own for both corpora


def test_other_bytes_with_the_same_text_are_read_again_and_nothing_else_is_made(site: Site) -> None:
    path = site.project.directory / "topics.jsonl"
    path.write_text(path.read_text() + "\n")
    before = site.project.store.current(keys.scrubbed("topics")).path
    (request,) = site.tick().run_requests or []
    assert "corpora/topics/raw" in site.retokenize(request)
    assert site.project.store.current(keys.scrubbed("topics")).path == before
    assert not site.tick().run_requests


def test_one_change_starts_one_run_whoever_sees_it(site: Site) -> None:
    site.change()
    (request,) = site.tick().run_requests or []
    raw = dg.RunRequest(asset_selection=[dg.AssetKey(["corpora", "topics", "raw"])], tags=request.tags)
    assert site.retokenize(raw) == {"corpora/topics/raw"}  # and not further
    assert "a run was already started for this change" in str(site.tick().skip_reason)
    night = site.night()
    assert isinstance(night, dg.RunRequest) and night.tags[CHANGE_TAG] == request.tags[CHANGE_TAG]


def test_a_change_waits_for_a_run_that_may_follow_it_but_not_for_a_training(site: Site) -> None:
    def started(job: str) -> dg.DagsterRun:
        definition = site.definitions.resolve_job_def(job)
        run = site.instance.create_run_for_job(definition, status=dg.DagsterRunStatus.STARTED)
        orphaned_runs.claim(site.instance, run, OWN)
        return run

    site.change()
    started("pretrain")
    assert site.tick().run_requests
    run = started("retokenize")
    tick, night = site.tick(), site.night()
    assert not tick.run_requests
    assert f"waiting until the run {run.run_id[:8]} of retokenize has ended" in str(tick.skip_reason)
    assert isinstance(night, dg.SkipReason)


def test_a_run_that_is_started_again_goes_on_with_the_corpora_that_it_had_read(site: Site) -> None:
    (first,) = site.instance.get_runs()
    before = data_versions(site.project)
    site.change()
    site.retokenize()  # another run, between the first and its retry
    after = data_versions(site.project)
    retry = {"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id}
    shards = dg.AssetKey(["token_shards", "topics"])
    assert site.retokenize(dg.RunRequest(asset_selection=[shards], tags=retry)) == {"token_shards/topics"}
    (newest,) = site.instance.fetch_materializations(shards, limit=1).records
    assert newest.asset_materialization
    assert newest.asset_materialization.tags["dagster/data_version"] == before["token_shards/topics"]
    assert data_versions(site.project) == after  # the recipe uses the corpus as it is now


@pytest.mark.slow
def test_the_daemon_notices_and_retokenizes(site: Site) -> None:
    before = data_versions(site.project)
    site.change()
    with site.project.serving("dagster-daemon", "run") as daemon:
        deadline = time.monotonic() + 180
        while not (
            runs := site.instance.get_runs(
                dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS], tags={"groundwork/changed": "topics"})
            )
        ):
            assert daemon.poll() is None and time.monotonic() < deadline, (
                site.project.directory / "server.log"
            ).read_text()[-2000:]
            time.sleep(1)
    assert len(runs) == 1
    assert data_versions(site.project)["token_shards/topics"] != before["token_shards/topics"]
