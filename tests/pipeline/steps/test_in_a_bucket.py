"""The stages with a store in a bucket: on this machine, and on a Ray cluster whose nodes share no disk."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pipeline.cli import main
from pipeline.steps.dedup.passage_index import Matcher
from pipeline.steps.tokens.token_index import TokenSearch
from pipeline.store import keys
from pipeline.store.bucket.files import BucketFiles, cache_of
from pipeline.store.cleanup.holding_forgotten import delete, holding
from pipeline.store.engines.local import LocalEngine
from pipeline.store.forgotten import forget, of_all, requests
from pipeline.store.parquet import batches
from pipeline.store.store import Store

pytest.importorskip("ray")

from ray import cloudpickle

from tests.integration.project import python_topics
from tests.journeys.test_cluster import make, manifests, write_sources
from tests.ray_cluster import RayCluster, engine_on, started
from tests.traces import bytes_with, pieces

NODE = """
set -e
mount --bind "$1" "$2"
exec "$3" start --address="$4" --num-cpus=1 --node-name="$5" --object-store-memory=80000000 --block
"""


pytestmark = pytest.mark.usefixtures("s3_environment")


def test_the_stages_write_into_a_bucket_what_they_write_here(tmp_path: Path) -> None:
    write_sources(tmp_path / "source")
    make(tmp_path / "local", tmp_path / "source", LocalEngine(workers=1))
    root = cache_of("s3://bucket/here", tmp_path / "cache")
    engine = LocalEngine(workers=2, processes_pay_above=0)
    make(root, tmp_path / "source", engine)
    engine.close()
    assert manifests(root) == manifests(tmp_path / "local")
    # Another machine, which has nothing yet, finds the same in it.
    answers = []
    for place in (tmp_path / "local", cache_of("s3://bucket/here", tmp_path / "other")):
        store = Store(place)
        found = TokenSearch(store.current(keys.token_shards("even")), store.current(keys.token_index("even")))
        answers.append([found.positions(run).tolist() for run in (np.array([260]), np.array([260, 300]))])
        documents = store.current(keys.scrubbed("even"))
        matcher = Matcher([(documents, store.current(keys.passage_index("even")))], 0.25, of_all([]))
        answers[-1].append(sorted(one.row["id"] for one in matcher.matches(python_topics()[2]["text"])))
    assert answers[0] == answers[1] and answers[0][0] and answers[0][2]


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_what_a_task_on_ray_takes_or_returns_can_name_the_store(
    dumps: Callable[[object], bytes], tmp_path: Path
) -> None:
    store = Store(cache_of("s3://bucket/named", tmp_path / "cache"))
    assert pickle.loads(dumps(store)).files is store.files  # with its connections


def test_what_held_a_forgotten_document_is_deleted_from_a_bucket(tmp_path: Path) -> None:
    write_sources(tmp_path / "source")
    root, engine = cache_of("s3://bucket/forgotten", tmp_path / "cache"), LocalEngine(workers=1)
    make(root, tmp_path / "source", engine)
    store = Store(root)
    ids = next(batches(store.current(keys.raw("even")).files("documents")[0], ["id"])).column("id")
    forget(store.files, {"even": [ids[0].as_py()]}, "asked for")
    # on another machine
    store = Store(cache_of("s3://bucket/forgotten", tmp_path / "other"))
    documents = of_all(requests(store.files)).among
    found = holding(store, documents)
    held = {one.key for one in found.versions}
    assert {
        "corpora/even/raw",
        "token_shards/even",
        "token_index/even",
        "passage_index/even",
        "dedup",
    } <= held
    delete(store, found)
    assert isinstance(store.files, BucketFiles)
    left = [one.key for one in store.files.bucket.objects("")]
    assert not [key for one in found.versions for key in left if one.path.name in key]
    make(root, tmp_path / "source", engine)
    assert not holding(Store(root), documents).versions


def test_another_machine_forgets_what_the_bucket_forgot_and_drops_its_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sources(tmp_path / "source")
    roots = [cache_of("s3://bucket/both", tmp_path / name) for name in ("cache", "other")]
    for root in roots:
        make(root, tmp_path / "source", LocalEngine(workers=1))
        for key in ("corpora/even/raw", "corpora/even/scrubbed", "token_shards/even"):
            Store(root).current(key).directory()
    row = next(batches(Store(roots[0]).current(keys.raw("even")).files("documents")[0], ["id", "text"]))
    document, text = row.column("id")[1].as_py(), row.column("text")[1].as_py()
    others = "".join(one["text"] for one in python_topics() if one["text"] != text)
    traces = [document.encode(), *map(str.encode, pieces(text, others))]
    assert all(bytes_with(root, trace) for root in roots for trace in traces)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("GROUNDWORK_STORE", "s3://bucket/both")
    for number, name in enumerate(("cache", "other")):
        monkeypatch.setenv("GROUNDWORK_CACHE", str(tmp_path / name))
        if number == 0:
            assert main(["forget", document, "--reason", "asked for", "--yes"]) == 0
        assert main(["gc", "--forgotten"]) == 0
        assert not bytes_with(roots[number], *traces)
        assert main(["verify"]) == 0
    make(roots[1], tmp_path / "source", LocalEngine(workers=1))
    assert not bytes_with(roots[1], *traces)


@contextmanager
def machine(cluster: RayCluster, disk: Path, cache: Path, number: int) -> Iterator[None]:
    """A node whose cache is a disk of its own under the path that all machines use. It has joined the others,
    because of two that join at once Ray loses one.
    """
    disk.mkdir()
    name = f"worker-{number}"
    ray = str(Path(sys.executable).with_name("ray"))
    run = ["unshare", "--mount", "sh", "-c", NODE, "-", str(disk), str(cache), ray, cluster.address, name]
    node = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    try:
        cluster.wait_for(workers=number + 1)
        yield
    finally:
        node.terminate()
        node.wait(60)


@pytest.mark.slow
def test_nodes_that_share_no_disk_write_what_one_machine_writes(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("no file system of its own for a node: that needs root and unshare")
    write_sources(tmp_path / "source")
    make(tmp_path / "local", tmp_path / "source", LocalEngine(workers=1))
    cache = tmp_path / "cache"
    cache.mkdir()
    root = cache_of("s3://bucket/apart", cache)
    with (
        started(nodes=0) as cluster,
        machine(cluster, tmp_path / "disk-0", cache, 0),
        machine(cluster, tmp_path / "disk-1", cache, 1),
    ):
        engine = engine_on(cluster.address)
        make(root, tmp_path / "source", engine)
        engine.close()
    assert manifests(root) == manifests(tmp_path / "local")
    for disk in ("disk-0", "disk-1"):
        written = [path for path in (tmp_path / disk).rglob("*.parquet") if "scrubbed" in path.parts]
        assert written, f"{disk} did none of the work"
