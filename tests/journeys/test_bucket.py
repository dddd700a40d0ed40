"""A whole run with its store in a bucket: the bytes of a local one, empty caches, kills, two runs at once."""

import json
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.sections import LaunchParams
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.training.launcher import Launcher
from pipeline.store import keys
from pipeline.store.bucket.files import cache_of
from pipeline.store.files import MANIFEST
from pipeline.store.store import Store
from tests.integration.project import Project, make_project, python_topics
from tests.s3_server import S3, proxied

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("s3_environment")]
UP_TO_DATE_SECONDS = 20.0
COMMANDS = (
    ["summary"],
    ["verify"],
    ["verify", "--deep"],
    ["gc"],
    ["inspect"],
    ["inspect-shards"],
    ["export", "--format", "parquet", "--out", "out/parquet"],
    ["export", "--format", "megatron", "--out", "out/megatron"],
)


@dataclass
class BucketProject(Project):
    """Its store is in the bucket of a server, below `prefix`; `cache`: the directory of its machine."""

    server: S3 | None = None
    prefix: str = "store"
    cache: str = "cache"

    @property
    def address(self) -> str:
        return f"s3://bucket/{self.prefix}"

    def environment(self) -> dict[str, str]:
        assert self.server
        settings = {"GROUNDWORK_CACHE": str(self.directory / self.cache)}
        if "store" not in self.recipe:
            settings["GROUNDWORK_STORE"] = self.address
        return super().environment() | self.server.environment | settings

    def store_of(self, overrides: Any) -> Store:
        written, changed = load_recipe(self.write_recipe()), load_recipe(self.write_recipe(), dict(overrides))
        root = cache_of(self.address, self.directory / self.cache)
        return Store(root, RecipeVersions(changed, written))

    def on_another_machine(self, name: str) -> "BucketProject":
        """The same recipe where nothing is cached, with records of its own in Dagster."""
        shutil.rmtree(self.directory / "home", ignore_errors=True)
        return BucketProject(self.directory, self.recipe, self.server, self.prefix, name)


def in_bucket(project: Project, server: S3, prefix: str, **settings: Any) -> BucketProject:
    return BucketProject(project.directory, project.recipe | settings, server, prefix)


def manifests(server: S3, prefix: str) -> dict[str, Any]:
    """As those of a directory, of the versions in the bucket."""
    found = {}
    for key in server.keys(f"{prefix}/"):
        if key.endswith(f"/{MANIFEST}") and "/runs/" not in key:
            content = server.client.get_object(Bucket="bucket", Key=key)["Body"].read()
            found[key.removeprefix(f"{prefix}/")] = lasting(json.loads(content))
    return found


def lasting(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest apart from what differs between two runs anyway."""
    differing = ("seconds", "finished", "checksum")
    return {name: value for name, value in manifest.items() if name not in differing}


def test_a_run_in_a_bucket_is_that_of_a_directory_and_every_command_reads_it(
    server: S3, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project")
    project.make()
    name = project.store.current(keys.PRETRAINED_MODEL).path.name[:8] + "-00000032"
    text = python_topics()[3]["text"][200:700]
    questions = [["trace", text, "--json"], ["trace", text, "--json", "--checkpoint", name]]
    traced = [project.command(*question) for question in questions]
    assert all(json.loads(answer)[0]["spans"][0]["occurrences"] for answer in traced)
    root = project.home / "store"
    local = {
        path.relative_to(root).as_posix(): lasting(json.loads(path.read_text()))
        for path in root.rglob(MANIFEST)
        if not {"runs", "token_index"} & {*path.relative_to(root).parts}
    }
    content = project.content()
    shutil.rmtree(project.home)
    there = in_bucket(project, server, "whole")
    there.make()
    assert there.content() == content
    made = manifests(server, "whole")
    assert made.keys() == local.keys()
    # models and scores are the same, but facts of the machine and its speed are beside them
    timed = ("pretrained_model", "evaluation", "exported_model")
    assert {name: made[name] for name in made if not name.startswith(timed)} == {
        name: local[name] for name in local if not name.startswith(timed)
    }

    for number, arguments in enumerate(COMMANDS):
        said = there.on_another_machine(f"cache-{number}").command(*arguments)
        assert "damaged in" in said or arguments[0] != "verify"
    checkpoint = there.store.current(keys.PRETRAINED_MODEL).path.name[:8] + "-00000032"
    elsewhere = there.on_another_machine("elsewhere")
    assert "corpora/topics/raw" in elsewhere.command("lineage", "--json", checkpoint)
    assert "no checkpoint on disk" in elsewhere.command("lineage", "--document", "again")
    elsewhere.command("reproduce", checkpoint, "--out", "out/again")
    assert checkpoint == name and not server.keys("whole/token_index/")
    written = []
    for machine in ("tracing", "tracing again"):
        assert [there.on_another_machine(machine).command(*question) for question in questions] == traced
        written.append(server.written("whole/token_index/"))
    assert written[0] == written[1] and len(written[0]) > 4, "the index was made again"

    with proxied(server, latency=0.02) as (far, proxy):
        there.server = far
        began = time.monotonic()
        status, said = there.run()
        seconds = time.monotonic() - began
        assert status == 0, said
        assert proxy.moved["PUT"] < 1_000, "something was made again"
        print(f"up to date in {seconds:.1f} s, {proxy.requests} requests")
        assert seconds < UP_TO_DATE_SECONDS


def test_a_training_that_was_killed_resumes_on_a_machine_with_an_empty_cache(
    server: S3, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project")
    project.recipe["training"] = project.recipe["training"] | {"max_tokens": 65_536}
    whole = in_bucket(project, server, "unbroken")
    whole.make()
    content = whole.content()
    killed = in_bucket(project, server, "killed").on_another_machine("killed")

    def saved() -> bool:
        keys = server.keys("killed/runs/")
        return any(key.endswith(f"{MANIFEST}") and "/checkpoints/" in key for key in keys)

    killed.run_until(saved, signal.SIGKILL)
    other = killed.on_another_machine("other")
    other.make()
    assert "resumes from " in (next((tmp_path / "project" / "other").rglob("log.txt"))).read_text()
    assert other.content() == content


def test_two_runs_of_one_recipe_at_once_end_in_one_version_each(server: S3, tmp_path: Path) -> None:
    first = make_project(tmp_path / "first")
    second = Project(tmp_path / "second", first.recipe)
    second.directory.mkdir()
    projects = [in_bucket(one, server, "shared", store="s3://bucket/shared") for one in (first, second)]
    runs = [one.start() for one in projects]
    for run in runs:
        _, said = run.communicate(timeout=900)
        assert run.returncode == 0, said
    assert projects[0].content() == projects[1].content()
    keys = [Path(name).parts[:-2] for name in manifests(server, "shared")]
    assert len(keys) == len(set(keys))


def test_other_programs_read_what_lies_in_the_bucket(server: S3, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("s3fs", reason="needs the extra `s3`")
    import pyarrow.parquet as pq
    from pyarrow.fs import S3FileSystem

    (key,) = [one for one in server.keys("shared/corpora/topics/scrubbed") if "documents/" in one][:1]
    filesystem = S3FileSystem(
        endpoint_override=server.endpoint.removeprefix("http://"),
        scheme="http",
        access_key="key",
        secret_key="geheim",
        region="us-east-1",
    )
    rows = pq.read_table(f"bucket/{key}", filesystem=filesystem).num_rows
    assert rows
    loaded = datasets.load_dataset(
        "parquet",
        data_files=f"s3://bucket/{key}",
        split="train",
        cache_dir=str(tmp_path),
        storage_options={
            "key": "key",
            "secret": "geheim",
            "client_kwargs": {"endpoint_url": server.endpoint},
        },
    )
    assert loaded.num_rows == rows


def test_training_on_nodes_that_share_no_cache_is_refused_before_any_data_is_made(
    server: S3, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("no file system of its own for a node: that needs root and unshare")
    from tests.pipeline.steps.test_in_a_bucket import machine, started

    project, cache = make_project(tmp_path / "project"), tmp_path / "project" / "cache"
    cache.mkdir()
    with started(nodes=1) as cluster:
        launch = {"kind": "ray", "address": cluster.address}
        Launcher(LaunchParams(**launch), None).check_nodes(cache)  # worker-0 shares it
        with machine(cluster, tmp_path / "disk", cache, 1):
            status, said = in_bucket(project, server, "refused", launch=launch).run()
    assert status != 0
    assert "launch.kind ray: worker-1 of the cluster cannot see" in said
    assert not server.keys("refused/corpora")


def test_a_longer_training_goes_on_from_a_run_that_only_the_bucket_has(server: S3, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    project.recipe["training"]["schedule"] = {"kind": "wsd", "warmup_tokens": 2048, "decay_fraction": 0.25}
    there = in_bucket(project, server, "trunk")
    there.make()
    elsewhere = there.on_another_machine("elsewhere")
    elsewhere.recipe["training"]["max_tokens"] = 20_480
    said = elsewhere.make()
    assert "at step 24 of 40: 12,288 tokens are trained already" in said
    shared = elsewhere.content()
    alone = in_bucket(elsewhere, server, "alone").on_another_machine("alone")
    status, said = alone.run()
    assert status == 0 and "trained already" not in said, said
    assert alone.content() == shared
