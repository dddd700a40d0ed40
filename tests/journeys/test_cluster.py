"""The stages on a Ray cluster of three nodes, of which each stage loses one: the bytes of one machine."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pipeline.recipe.sections import ShardParams
from pipeline.sources.documents import document_id, own_id
from pipeline.sources.files import FilesConfig
from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.steps.dedup import passage_index
from pipeline.steps.tokens.token_index import TokenIndex
from pipeline.store import keys
from pipeline.store.engines.local import Engine, LocalEngine
from pipeline.store.files import MANIFEST
from pipeline.store.fingerprint import file_sha256
from pipeline.store.forgotten import forget
from pipeline.store.store import Store
from tests.integration.project import TRAINING, python_topics, until
from tests.pipeline.steps.make import deduplicate, tokenize, tokenizer, up_to_quality
from tests.ray_cluster import RayCluster, started

pytest.importorskip("ray")

from pipeline.store.engines.ray import RayEngine

Task = TypeVar("Task")
Result = TypeVar("Result")
PART_BYTES = 40_000
CORPORA = ("even", "odd")


class Killing:
    """Loses the newest node once in each stage, after its first result, and adds another one."""

    apart = True

    def __init__(self, engine: Engine, cluster: RayCluster):
        self.engine = engine
        self.cluster = cluster
        self.killed_in: set[str] = set()

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, what: str, **more: Any
    ) -> Iterator[Result]:
        stage = what.rpartition("/")[2] if what.startswith("corpora") else what.partition("/")[0]
        for result in self.engine.map(function, tasks, what=what, **more):
            if len(tasks) > 1 and stage not in self.killed_in:
                self.killed_in.add(stage)
                self.cluster.kill_node()
                self.cluster.add_node()
            yield result


def make(root: Path, source: Path, engine: Engine) -> None:
    """Takes two corpora from raw to token shards and their indexes."""
    store = Store(root)
    for corpus in CORPORA:
        files = FilesConfig(paths=(f"{corpus}-*.jsonl",)).anchored(source)
        up_to_quality(store, engine, corpus, files, PART_BYTES)
    deduplicate(store, engine, CORPORA, DedupParams())
    tokenizer(store, engine, "test", CORPORA, TokenizerParams(vocab_size=512), 0.1)
    for corpus in CORPORA:
        tokenize(store, engine, corpus, ShardParams(validation_fraction=0.1))
        TokenIndex(corpus).make(store, engine)
        passage_index.index(store, engine, store.current(keys.scrubbed(corpus)))


def write_sources(source: Path) -> None:
    source.mkdir()
    documents = python_topics()
    for number in range(8):
        path = source / f"{CORPORA[number % 2]}-{number}.jsonl"
        path.write_text("".join(json.dumps(document) + "\n" for document in documents[number::8]))


def manifests(root: Path) -> dict[str, Any]:
    """Every manifest of a store by its path, apart from what differs between two runs anyway."""
    found = {}
    for path in root.rglob(MANIFEST):
        manifest = json.loads(path.read_text())
        found[path.relative_to(root).as_posix()] = {
            name: value for name, value in manifest.items() if name not in ("seconds", "finished", "checksum")
        }
    return found


def test_the_stages_write_on_a_cluster_what_they_write_here(engine: RayEngine, tmp_path: Path) -> None:
    write_sources(tmp_path / "source")
    make(tmp_path / "local", tmp_path / "source", LocalEngine(workers=1))
    make(tmp_path / "ray", tmp_path / "source", engine)
    made = manifests(tmp_path / "local")
    assert len(made) == 19
    assert manifests(tmp_path / "ray") == made


def test_a_cluster_sets_forgotten_documents_aside(engine: RayEngine, tmp_path: Path) -> None:
    """It writes what one machine writes of a source that never had them."""
    write_sources(tmp_path / "source")
    make(tmp_path / "ray", tmp_path / "source", engine)
    files = sorted((tmp_path / "source").glob("even-*"))
    gone = [json.loads(path.read_text().splitlines()[2])["id"] for path in files]
    ids = [document_id("even", own_id(name)) for name in gone]
    forget(Store(tmp_path / "ray").files, {"even": ids}, "asked for")
    make(tmp_path / "ray", tmp_path / "source", engine)
    for path in files:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:2] + lines[3:]))
    shutil.copytree(tmp_path / "ray" / "tokenizer", tmp_path / "never" / "tokenizer")
    make(tmp_path / "never", tmp_path / "source", LocalEngine(workers=1))
    never, left = Store(tmp_path / "never"), Store(tmp_path / "ray")
    made = {path.parent.parent.relative_to(never.root).as_posix() for path in never.root.rglob(MANIFEST)}
    assert len(made) == 19 and never.data_versions(made) == left.data_versions(made)
    assert left.current(keys.raw("even")).counts["set_aside/forgotten"] == len(ids) == 4


@pytest.mark.slow
def test_a_node_lost_in_each_stage_changes_nothing(
    cluster: RayCluster, engine: RayEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_sources(tmp_path / "source")
    make(tmp_path / "local", tmp_path / "source", LocalEngine(workers=1))
    killing = Killing(engine, cluster)
    make(tmp_path / "ray", tmp_path / "source", killing)
    assert killing.killed_in == {
        *("raw", "scrubbed", "signals", "quality", "signatures", "token_shards"),
        *("dedup candidates", "dedup evidence", "dedup decisions", "tokenizer words"),
        *("token_index", "passage_index"),
    }
    assert manifests(tmp_path / "ray") == manifests(tmp_path / "local")
    assert not list((tmp_path / "ray").rglob("*.tmp"))
    assert "runs again: the node is gone" in caplog.text


@pytest.mark.slow
def test_the_run_after_a_killed_one_ends_right(
    cluster: RayCluster, engine: RayEngine, tmp_path: Path
) -> None:
    write_sources(tmp_path / "source")
    make(tmp_path / "local", tmp_path / "source", LocalEngine(workers=1))
    for stage in ("corpora/odd/raw", "corpora/odd/scrubbed", "dedup"):
        directories = [str(tmp_path / name) for name in ("ray", "source")]
        run = subprocess.Popen([sys.executable, "-c", RUN, cluster.address, *directories])
        until((tmp_path / "ray" / stage).is_dir, 60)
        run.kill()
        run.wait()
    make(tmp_path / "ray", tmp_path / "source", engine)
    assert manifests(tmp_path / "ray") == manifests(tmp_path / "local")


@pytest.mark.slow
def test_two_runs_with_other_settings_and_gc_beside_them_end_as_each_does_alone(tmp_path: Path) -> None:
    write_sources(tmp_path / "source")
    corpora = [
        {"name": name, "source": {"kind": "files", "paths": [str(tmp_path / f"source/{name}-*.jsonl")]}}
        for name in CORPORA
    ]
    recipe = {"name": "shared", "corpora": corpora, "raw": {"part_bytes": 150_000}, "quality": "docs"}
    settings = {"tokenizer": {"vocab_size": 512}, "training": TRAINING}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe | settings))
    changes = ({"raw": {"part_bytes": 200_000}}, {"quality": {"profile": "docs", "min_words": 120}})
    contents(chain(tmp_path, "both", {}))  # all share its tokenizer, which is frozen
    alone = []
    for change in changes:
        shutil.copytree(tmp_path / "both", tmp_path / "alone", dirs_exist_ok=True)
        alone.append(contents(chain(tmp_path, "alone", change)))
    environment = {**os.environ, "GROUNDWORK_STORE": str(tmp_path / "both")}
    environment["GROUNDWORK_RECIPE"] = str(tmp_path / "recipe.yaml")
    gc = [sys.executable, "-m", "pipeline", "gc", "--delete"]
    with started(num_workers_soft_limit=4) as cluster:  # a worker serves one run
        runs = [chain(tmp_path, "both", one, "--ray", cluster.address) for one in changes]
        while any(run.poll() is None for run in runs):
            subprocess.run(gc, env=environment, check=False, capture_output=True)  # it is refused meanwhile
            time.sleep(2)
    subprocess.run(gc, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert [contents(run) for run in runs] == alone


def chain(place: Path, store: str, overrides: dict[str, Any], *options: str) -> "subprocess.Popen[str]":
    """Starts a run of the recipe in `place`."""
    given = [str(place / "recipe.yaml"), str(place / store), json.dumps(overrides), *options]
    command = [sys.executable, "-m", "tests.torture.chain", *given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def contents(run: "subprocess.Popen[str]") -> dict[str, str]:
    """The sha256 of each file of the versions that a run ends with, but for their manifests."""
    printed, _ = run.communicate(timeout=300)
    assert run.returncode == 0
    return {
        f"{key}/{path.relative_to(version)}": file_sha256(path)
        for key, version in json.loads(printed.splitlines()[-1]).items()
        for path in Path(version).rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


@pytest.mark.slow
def test_a_run_whose_head_or_node_is_gone_ends_in_a_sentence_and_the_next_one_continues(
    tmp_path: Path,
) -> None:
    write_sources(tmp_path / "source")
    make(tmp_path / "local", tmp_path / "source", LocalEngine(workers=1))
    directories = [str(tmp_path / name) for name in ("ray", "source")]
    soon = {**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}  # for which Ray waits a minute
    for lost, stage in (("gcs_server", "scrubbed"), ("raylet", "signatures")):
        with started(nodes=1) as cluster:
            command = [sys.executable, "-c", RUN, cluster.address, *directories]
            run = subprocess.Popen(command, env=soon, stderr=subprocess.PIPE, text=True)
            until((tmp_path / "ray/corpora/odd" / stage).is_dir, 60)
            cluster.cluster.head_node.all_processes[lost][0].process.kill()
            _, said = run.communicate(timeout=60)
        assert run.returncode == 1
        assert "start Ray again, and the run, which continues at the last whole part" in said
    make(tmp_path / "ray", tmp_path / "source", LocalEngine(workers=1))
    assert manifests(tmp_path / "ray") == manifests(tmp_path / "local")


RUN = """
import sys
from pathlib import Path
from tests.journeys.test_cluster import make
from tests.ray_cluster import engine_on
make(Path(sys.argv[2]), Path(sys.argv[3]), engine_on(sys.argv[1]))
"""
