"""A small store with sources in many formats, put back as it was before each trial, and the judge of what a
disturbed run made of it.
"""

import bz2
import csv
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipeline.recipe.recipe import load_recipe
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.training.plan import plan
from pipeline.store.store import Store
from tests.integration.project import ROOT, TRAINING, python_topics
from tests.s3_server import S3

SECONDS = 300  # after which a run hangs; compiling the kernels on a busy machine takes two minutes
SAME, SENTENCE = "same bytes", "a sentence, then same bytes"
Content = dict[str, dict[str, str]]

# What a recipe is changed to: each makes other versions of some stages.
CHANGES: list[dict[str, Any]] = [
    {},
    {"quality": "gopher"},
    {"quality": {"profile": "docs", "min_words": 120}},
    {"dedup": {"threshold": 0.5}},
    {"dedup": {"ngram": 3}},
    {"shards": {"validation_fraction": 0.2}},
    {"raw": {"part_bytes": 30_000}},
    {"scrub": {"kinds": ["email"]}},
]


class FindingError(Exception):
    """What no disturbance may lead to: other bytes, a traceback, an orphan, a remedy that does not work."""


@dataclass(frozen=True)
class Ended:
    """A process that ended: its status, what it printed and what it said on stderr."""

    status: int
    printed: str
    said: str


@dataclass
class World:
    """A directory with sources, a recipe and a store. `store` is made once and put back by `restore`.

    `faults`: kind and stage of each fault of this trial. `services`: what is stopped at the end. `bucket`: a
    server whose bucket holds the store of the unchanged recipe, once a trial has needed one.
    """

    directory: Path
    references: dict[str, Content] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    services: ExitStack = field(default_factory=ExitStack)
    bucket: S3 | None = None

    @property
    def place(self) -> Path:
        """What a trial may disturb."""
        return self.directory / "place"

    @property
    def store(self) -> Path:
        return self.place / "store"

    @property
    def sources(self) -> Path:
        return self.place / "sources"

    @property
    def recipe(self) -> Path:
        return self.place / "recipe.yaml"

    @property
    def training(self) -> Path:
        return self.place / "training.yaml"

    def build(self) -> None:
        """Makes the store of the unchanged recipe."""
        write_sources(self.sources)
        corpora = [
            {
                "name": path.name.split(".")[0],
                "source": {"kind": "files", "paths": [str(path / "*") if path.is_dir() else str(path)]},
            }
            for path in sorted(self.sources.iterdir())
        ]
        settings = {
            "name": "torture",
            "corpora": corpora,
            "raw": {"part_bytes": 60_000},
            "quality": "docs",
            "tokenizer": {"vocab_size": 400},
            "shards": {"validation_fraction": 0.1},
            "training": TRAINING | {"max_tokens": 65_536, "samples": {"prompts": []}},
        }
        self.recipe.write_text(yaml.safe_dump(settings))
        self.references["{}"] = self.content(self.ended(self.start({})))
        recipe = load_recipe(self.recipe)
        run = plan(Store(self.store, RecipeVersions(recipe, recipe)), recipe)
        self.training.write_text(yaml.safe_dump(run.config.model_dump(mode="json")))
        shutil.copytree(self.place, self.directory / "whole", symlinks=True)

    def restore(self) -> None:
        self.faults.clear()
        shutil.rmtree(self.place, ignore_errors=True)
        subprocess.run(["cp", "-a", self.directory / "whole", self.place], check=True)

    def fault(self, kind: str, stage: str) -> None:
        self.faults.append((kind, stage))

    def stage(self, path: Path) -> str:
        """The stage that a file of the store belongs to."""
        parts = path.relative_to(self.store).parts
        return parts[2] if parts[0] == "corpora" and len(parts) > 2 else parts[0]

    def last_stage(self) -> str:
        """The stage that wrote last."""
        written = {}
        for path in self.store.glob("*/*/**/*"):
            with suppress(FileNotFoundError):
                written[path] = path.stat().st_mtime_ns
        return self.stage(max(written, key=lambda path: written[path]))

    def start(
        self,
        overrides: Mapping[str, Any],
        *options: str,
        store: Path | str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[str]":
        """Starts a run, in a session of its own."""
        given = [str(self.recipe), str(store or self.store), json.dumps(overrides), *options]
        return self._popen("tests.torture.chain", *given, environment=environment)

    def command(self, *arguments: str) -> Ended:
        """`python -m pipeline ...`."""
        return self.ended(self._popen("pipeline", *arguments))

    def train(self, run_dir: Path) -> "subprocess.Popen[str]":
        """`python -m trainer ...` on the token shards of the unchanged recipe."""
        return self._popen("trainer", str(self.training), f"run_dir={run_dir}")

    def _popen(
        self, module: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=self.place,
            env=self._environment | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @cached_property
    def _environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER", "GROUND"))
        }
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        return kept | {
            "PYTHONPATH": str(ROOT),
            "DAGSTER_HOME": str(home),
            "HF_ENDPOINT": "http://127.0.0.1:1",
            "GROUNDWORK_RECIPE": str(self.recipe),
            "GROUNDWORK_STORE": str(self.store),
        }

    def ended(self, process: "subprocess.Popen[str]") -> Ended:
        """Waits for a process. Raises FindingError for a hang, a traceback or an orphan."""
        try:
            printed, said = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise FindingError(f"hung for {SECONDS} s: {process.communicate()[1][-500:]}") from None
        if "Traceback" in said:
            raise FindingError(f"traceback: {said[-1500:]}")
        if process.returncode >= 0 and (left := orphans(process.pid)):
            raise FindingError(f"orphans: {left}")
        return Ended(process.returncode, printed, said)

    def content(self, ended: Ended) -> Content:
        """The hash of every file of every version that a run ended with, by key and path, computed here."""
        versions = json.loads(ended.printed.splitlines()[-1])
        return {key: hashes(Path(path)) for key, path in versions.items()}

    def reference(self, overrides: Mapping[str, Any]) -> Content:
        """What an undisturbed run makes."""
        named = json.dumps(overrides)
        if named not in self.references:
            aside = self.directory / "reference"
            shutil.rmtree(aside, ignore_errors=True)
            subprocess.run(["cp", "-a", self.directory / "whole" / "store", aside], check=True)
            self.references[named] = self.content(self.ended(self.start(overrides, store=aside)))
        return self.references[named]

    def judge(self, overrides: Mapping[str, Any], ended: Ended | None = None) -> str:
        """The outcome of a run: the same bytes, at once or by the remedy that its one sentence names.
        Without `ended`, of a new run. A damaged tokenizer is trained again by the unchanged recipe, which
        made it. Raises FindingError.
        """
        ended = ended or self.ended(self.start(overrides))
        outcome = SAME
        if ended.status == 2:
            outcome = SENTENCE
            if "frozen" not in ended.said or ended.said.count("error:") != 1:
                raise FindingError(f"no remedy: {ended.said[-500:]}")
            ended = self.ended(self.start({}, "--retrain"))
            if overrides and ended.status == 0:
                ended = self.ended(self.start(overrides))
        if ended.status:
            raise FindingError(f"exit status {ended.status}: {ended.said[-500:]}")
        if differing := differences(self.content(ended), self.reference(overrides)):
            raise FindingError(f"other bytes: {differing}")
        return outcome


def worst(*outcomes: str) -> str:
    """Of several runs of a trial."""
    return SENTENCE if SENTENCE in outcomes else outcomes[0]


def outcome_of(ended: Ended, remedy: str = "error:", *, named: str = "", well: str = SAME) -> str:
    """`well`, or that a run was refused in one sentence with `remedy` in it. Raises FindingError."""
    if ended.status == 0:
        return well
    if ended.status == 2 and ended.said.count("error:") == 1 and remedy in ended.said:
        return SENTENCE
    raise FindingError(f"{named}exit status {ended.status}: {ended.said[-500:]}")


def hashes(version: Path) -> dict[str, str]:
    """Of every file of a version but its manifest, which tells the time."""
    return {
        str(path.relative_to(version)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(version.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def differences(found: Content, wanted: Content) -> list[str]:
    return [
        f"{key}/{name}"
        for key in sorted(wanted | found)
        for name in sorted(wanted.get(key, {}) | found.get(key, {}))
        if found.get(key, {}).get(name) != wanted.get(key, {}).get(name)
    ]


def orphans(session: int) -> list[str]:
    """Processes that are left of a session."""
    found = subprocess.run(
        ["ps", "-s", str(session), "-o", "stat=,args="], capture_output=True, text=True, check=False
    )
    return [line for line in found.stdout.splitlines() if not line.startswith("Z")]


def json_lines(rows: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write_sources(directory: Path) -> None:
    """A corpus in each format; they share some documents."""
    directory.mkdir(parents=True)
    whole = python_topics()
    (directory / "plain.jsonl").write_bytes(json_lines(whole[:20]))
    (directory / "gzipped.jsonl.gz").write_bytes(gzip.compress(json_lines(whole[15:30]), mtime=0))
    (directory / "bzipped.jsonl.bz2").write_bytes(bz2.compress(json_lines(whole[30:42])))
    (directory / "xzipped.jsonl.xz").write_bytes(lzma.compress(json_lines(whole[42:52])))
    table = io.StringIO()
    writer = csv.DictWriter(table, ["id", "text"])
    writer.writeheader()
    writer.writerows(whole[52:62])
    (directory / "rows.csv").write_text(table.getvalue())
    pq.write_table(pa.Table.from_pylist(whole[60:72]), directory / "columns.parquet", row_group_size=4)
    (directory / "texts").mkdir()
    for row in whole[70:]:
        (directory / "texts" / f"{row['id']}.txt").write_text(row["text"])
