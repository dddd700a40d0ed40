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
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipeline.recipe.loading import load_recipe
from pipeline.steps.training.plan import plan
from tests.integration.project import ROOT, TRAINING, Project, python_topics
from tests.s3_server import CloudServer

SECONDS = 300  # after which a run hangs; compiling the kernels on a busy machine takes two minutes
SAME, SENTENCE = "same bytes", "a sentence, then same bytes"
Ended = subprocess.CompletedProcess[str]
Content = dict[str, str]

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


@dataclass
class World:
    """A project with sources in `place`, which a trial may disturb and `restore` puts back.

    `faults`: kind and stage of each fault of this trial. `services`: what is stopped at the end. `buckets`: a
    server for each cloud, whose bucket holds the store of the unchanged recipe, once a trial has needed one.
    """

    directory: Path
    references: dict[str, Content] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    services: ExitStack = field(default_factory=ExitStack)
    buckets: dict[str, CloudServer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place = self.directory / "place"
        self.project = Project(self.place)
        self.store, self.sources = self.project.home / "store", self.place / "sources"

    def build(self) -> None:
        """Makes the store of the unchanged recipe."""
        write_sources(self.sources)
        self.project.recipe = {
            "name": "torture",
            "corpora": [
                {
                    "name": path.name.split(".")[0],
                    "source": {"kind": "files", "paths": [str(path / "*") if path.is_dir() else str(path)]},
                }
                for path in sorted(self.sources.iterdir())
            ],
            "raw": {"part_bytes": 60_000},
            "quality": "docs",
            "tokenizer": {"vocab_size": 400},
            "shards": {"validation_fraction": 0.1},
            "training": TRAINING | {"max_tokens": 65_536, "samples": {"prompts": []}},
        }
        self.references["{}"] = self.content(self.succeeded(self.start({})))
        run = plan(self.project.store, load_recipe(self.project.write_recipe()))
        (self.place / "training.yaml").write_text(yaml.safe_dump(run.config.model_dump(mode="json")))
        shutil.copytree(self.place, self.directory / "whole", symlinks=True)

    def restore(self) -> None:
        self.faults.clear()
        shutil.rmtree(self.place, ignore_errors=True)
        subprocess.run(["cp", "-a", self.directory / "whole", self.place], check=True)
        self.project.recipe = yaml.safe_load((self.place / "recipe.yaml").read_text())

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
        given = [str(self.project.write_recipe()), str(store or self.store), json.dumps(overrides), *options]
        return self.python("tests.torture.chain", *given, environment=environment)

    def train(self, run_dir: Path, *changes: str) -> "subprocess.Popen[str]":
        """A training on the token shards of the unchanged recipe."""
        return self.python("trainer", "training.yaml", f"run_dir={run_dir}", *changes)

    def python(
        self, module: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=self.place,
            env={
                **self.project.environment(),
                "PYTHONPATH": str(ROOT),
                "HF_ENDPOINT": "http://127.0.0.1:1",
                **(environment or {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

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
        return Ended(process.args, process.returncode, printed, said)

    def succeeded(self, process: "subprocess.Popen[str]") -> Ended:
        """Waits for a process. Raises FindingError if it fails, too."""
        return _without_error(self.ended(process))

    def content(self, ended: Ended) -> Content:
        """The hash, computed here, of every file of every version that a run ended with. Manifests are left
        out: they tell the time.
        """
        return {
            f"{key}/{path.relative_to(version)}": hashlib.sha256(path.read_bytes()).hexdigest()
            for key, version in json.loads(ended.stdout.splitlines()[-1]).items()
            for path in Path(version).rglob("*")
            if path.is_file() and path.name != "manifest.json"
        }

    def reference(self, overrides: Mapping[str, Any]) -> Content:
        """What an undisturbed run makes."""
        named = json.dumps(overrides)
        if named not in self.references:
            aside = self.directory / "reference"
            shutil.rmtree(aside, ignore_errors=True)
            subprocess.run(["cp", "-a", self.directory / "whole/home/store", aside], check=True)
            self.references[named] = self.content(self.succeeded(self.start(overrides, store=aside)))
        return self.references[named]

    def judge(self, overrides: Mapping[str, Any], ended: Ended | None = None) -> str:
        """The outcome of a run: the same bytes, at once or by the remedy that its one sentence names.
        Without `ended`, of a new run. A damaged tokenizer is trained again by the unchanged recipe, which
        made it. Raises FindingError.
        """
        ended = ended or self.ended(self.start(overrides))
        outcome = outcome_of(ended, "frozen")
        if outcome == SENTENCE:
            ended = self.succeeded(self.start({}, "--retrain"))
            if overrides:
                ended = self.succeeded(self.start(overrides))
        if differing := differences(self.content(ended), self.reference(overrides)):
            raise FindingError(f"other bytes: {differing}")
        return outcome


def worst(*outcomes: str) -> str:
    """Of several runs of a trial."""
    return SENTENCE if SENTENCE in outcomes else outcomes[0]


def outcome_of(ended: Ended, remedy: str = "", *, well: str = SAME) -> str:
    """`well`, or that a run was refused in one sentence with `remedy` in it. Raises FindingError."""
    refused = re.findall(r"(?m)^(?:.*\berror|trainer): ", ended.stderr)
    if ended.returncode == 2 and len(refused) == 1 and remedy in ended.stderr:
        return SENTENCE
    _without_error(ended)
    return well


def _without_error(ended: Ended) -> Ended:
    if ended.returncode:
        raise FindingError(f"exit status {ended.returncode} of {ended.args[2:]}: {ended.stderr[-500:]}")
    return ended


def differences(found: Content, wanted: Content) -> list[str]:
    return sorted(name for name in found | wanted if found.get(name) != wanted.get(name))


def orphans(session: int) -> list[str]:
    """Processes that are left of a session."""
    found = subprocess.run(["ps", "-s", str(session), "-o", "stat=,args="], capture_output=True, text=True)
    return [line for line in found.stdout.splitlines() if not line.startswith("Z")]


def write_sources(directory: Path) -> None:
    """A corpus in each format; they share some documents."""
    directory.mkdir(parents=True)
    whole = python_topics()
    lines = [f"{json.dumps(row)}\n".encode() for row in whole]
    table = io.StringIO()
    csv.writer(table).writerows([("id", "text"), *(row.values() for row in whole[52:62])])
    files = {
        "plain.jsonl": b"".join(lines[:20]),
        "gzipped.jsonl.gz": gzip.compress(b"".join(lines[15:30]), mtime=0),
        "bzipped.jsonl.bz2": bz2.compress(b"".join(lines[30:42])),
        "xzipped.jsonl.xz": lzma.compress(b"".join(lines[42:52])),
        "rows.csv": table.getvalue().encode(),
    }
    for name, content in files.items():
        (directory / name).write_bytes(content)
    pq.write_table(pa.Table.from_pylist(whole[60:72]), directory / "columns.parquet", row_group_size=4)
    (directory / "texts").mkdir()
    for row in whole[70:]:
        (directory / "texts" / f"{row['id']}.txt").write_text(row["text"])
