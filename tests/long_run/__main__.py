"""`python -m tests.long_run --minutes 60 --seed 1` lets a real `dagster dev` work for an hour. Corpora
change, models are trained, old runs are removed and processes are killed. Whether memory, file
descriptors and disk grow is written to performance/results/long_run.json, with a picture beside it.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import dagster as dg

from performance.harness.sidebyside import record
from pipeline.assets.operations.orphaned_runs import UNDER_WAY, process_of
from pipeline.store.errors import PipelineError
from tests.integration.project import ROOT, TRAINING, Project, python_topics
from tests.integration.test_killed_at_random import check_nothing_is_half_published, processes
from tests.integration.test_ui import free_port
from tests.long_run.figures import draw, growth, on_disk
from tests.trainer.parallel.test_killed import children

LIVING = {  # what the command line of a long-lived process holds
    "dagster dev": "bin/dagster dev",
    "webserver": "dagster_webserver",
    "daemon": "dagster._daemon",
    "proxy of the code server": "dagster code-server",
    "code server": "dagster api grpc",
}
SAMPLE_EVERY = 15
BULK = 36_000_000  # bytes of text: above 32 MB a stage starts worker processes
LOCATION = {"repositoryLocationName": "pipeline.definitions", "repositoryName": "__repository__"}
LAUNCH = """mutation($of: ExecutionParams!) { launchPipelineExecution(executionParams: $of) { __typename
  ... on LaunchRunSuccess { run { runId } } } }"""
RELOAD = (
    'mutation { reloadRepositoryLocation(repositoryLocationName: "pipeline.definitions") { __typename } }'
)
# What open pages of the UI ask for again and again.
PAGES = """{ runsOrError(limit: 25) { ... on Runs { results { runId status tags { key value } } } }
  assetNodes { assetKey { path } assetMaterializations(limit: 1) { timestamp } } }"""


@dataclass
class Long:
    """The project, its server, and what was done to them."""

    project: Project
    chance: random.Random
    port: int
    begun: float = field(default_factory=time.monotonic)
    samples: list[dict[str, Any]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    disturbed: list[tuple[float, str]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def now(self) -> float:
        return time.monotonic() - self.begun

    def note(self, what: str) -> None:
        self.done[what] += 1
        self.disturbed.append((round(self.now), what))
        print(f"{self.now:6.0f} s  {what}", flush=True)

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """An answer of the web server. Empty while it cannot give one."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        address, kind = f"http://127.0.0.1:{self.port}/graphql", {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(address, body, kind), timeout=60) as answer:
                return json.load(answer).get("data") or {}
        except OSError:
            self.done["questions that the web server did not answer"] += 1
            return {}

    def launch(self, job: str, training: dict[str, Any]) -> None:
        config = {"resources": {"workshop": {"config": {"training": training}}}}
        of = {"selector": {**LOCATION, "jobName": job}, "runConfigData": config, "mode": "default"}
        answer = self.ask(LAUNCH, of=of).get("launchPipelineExecution") or {}
        self.note(f"{job} launched" if "run" in answer else f"{job} refused: {answer.get('__typename')}")

    def sample(self) -> None:
        self.ask(PAGES)
        found = processes(self.project)
        living = {}
        for role, named in LIVING.items():
            with suppress(ValueError, OSError):  # there is none, or it has just ended
                pid = max(pid for pid, line in found.items() if named in line)
                memory = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]
                fds = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
                living[role] = {"pid": pid, "mb": int(memory) / 1e3, "fds": fds}
        disk = on_disk(self.project.home)
        self.samples.append({"s": round(self.now), "living": living, "processes": len(found), **disk})

    def write(self, name: str, documents: list[dict[str, str]]) -> None:
        path = self.project.directory / f"{name}.jsonl"
        other = path.with_suffix(".new")
        other.write_text("".join(json.dumps(document) + "\n" for document in documents))
        other.replace(path)

    def change(self) -> None:
        """A few documents of the small corpus; at times all of the large one."""
        if self.chance.random() < 0.15:
            return self.change_all()
        documents = python_topics()
        for _ in range(3):
            changed = self.chance.choice(documents)
            changed["text"] = (
                " ".join(self.chance.choices(changed["text"].split(" "), k=30)) + changed["text"]
            )
        self.write("topics", documents)
        return self.note("few documents changed")

    def change_all(self) -> None:
        paragraphs = [part for text in topics.values() for part in text.split("\n\n") if len(part) > 200]
        documents, size = [], 0
        while size < BULK:
            text = "\n\n".join(self.chance.choices(paragraphs, k=40))
            documents.append({"id": f"{self.chance.random()}", "text": text})
            size += len(text)
        self.write("bulk", documents)
        self.note("a corpus replaced")

    def victims(self, target: str, instance: dg.DagsterInstance) -> list[int]:
        found = processes(self.project)
        if target in LIVING:
            return [pid for pid, line in found.items() if LIVING[target] in line]
        if target == "trainer":
            return [pid for pid, line in found.items() if f"trainer {self.project.store.root}" in line]
        started = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        runs = [int(claim.split()[3]) for run in started if (claim := process_of(run))]
        if target == "run":
            return [pid for pid in runs if pid in found]
        workers = (pid for run in runs for pid in children(run))
        return [pid for pid in workers if "spawn_main" in found.get(pid, "")]

    def kill(self, target: str, instance: dg.DagsterInstance) -> bool:
        if not (found := self.victims(target, instance)):
            return False
        with suppress(ProcessLookupError):
            os.kill(self.chance.choice(found), signal.SIGKILL)
            self.note(f"{target} killed")
        if target == "code server":  # Dagster leaves it dead until somebody presses Reload
            time.sleep(10)
            self.ask(RELOAD)
        return True

    def disturb(self, seconds: float, instance: dg.DagsterInstance) -> None:
        """Until the time is over. In the second half the code server lives, to see whether it grows."""
        due = dict.fromkeys(("sample", "change", "train", "kill", "collect"), self.now)
        target, seed = "trainer", 0
        while (now := self.now) < seconds:
            if now >= due["sample"]:
                self.sample()
                if len(self.samples) % 20 == 1:
                    print(f"{self.now:6.0f} s  {self.samples[-1]}", flush=True)
                due["sample"] += SAMPLE_EVERY
            if now >= due["change"]:
                self.change()
                due["change"] = now + self.chance.uniform(60, 180)
            if now >= due["train"]:
                seed += 1
                self.launch("pretrain", {"seed": seed})
                due["train"] = now + self.chance.uniform(40, 90)
            if now >= due["collect"]:
                busy = self.command("gc", "--delete").returncode
                self.note("gc refused: a run prepares data" if busy else "gc --delete")
                due["collect"] = now + self.chance.uniform(120, 300)
            if now >= due["kill"] and self.kill(target, instance):
                servers = ["code server", "proxy of the code server"] if now < seconds / 2 else []
                target = self.chance.choice(["trainer", "worker", "run", "run", "trainer", *servers])
                due["kill"] = self.now + self.chance.uniform(15, 60)
            elif now >= due["kill"] + 120:
                target = "run"  # the other has nothing to do
            time.sleep(0.5)

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-m", "pipeline", *arguments]
        environment = self.project.environment()
        return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)

    def wait(self, what: str, reached: Callable[[], bool], seconds: float) -> None:
        """Samples meanwhile. What does not come true is a finding."""
        deadline = self.now + seconds
        while not reached():
            if self.now > deadline:
                self.findings.append(f"after {seconds} s: {what}")
                return
            self.sample()
            time.sleep(5)

    def conclude(self, instance: dg.DagsterInstance) -> None:
        """Nothing is disturbed any more: everything comes to its end, and one more of each kind succeeds."""

        def under_way() -> list[dg.DagsterRun]:
            return instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY))

        def succeeded(job: str, since: float) -> bool:
            done = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS])
            return any(
                record.create_timestamp.timestamp() >= since for record in instance.get_run_records(done)
            )

        self.wait("runs are under way", lambda: not under_way(), 900)
        since = time.time()
        self.change()
        self.wait("the sensor re-tokenized nothing", lambda: succeeded("retokenize", since), 400)
        self.launch("pretrain", {"seed": 10_000})
        self.wait("the last training did not succeed", lambda: succeeded("pretrain", since), 300)
        self.wait("no checkpoint was evaluated", lambda: succeeded("evaluate", since), 300)
        self.wait("runs are under way at the end", lambda: not under_way(), 300)
        for job in ("retokenize", "pretrain", "evaluate"):
            (last,) = instance.get_runs(dg.RunsFilter(job_name=job), limit=1)
            if last.status is not dg.DagsterRunStatus.SUCCESS:
                self.findings.append(f"the last {job} ended as {last.status}")
        for arguments in (("gc", "--delete"), ("verify", "--deep")):
            ended = self.command(*arguments)
            if ended.returncode:
                self.findings.append(f"{arguments}: {ended.stdout[-500:]}{ended.stderr[-500:]}")
        self.sample()


def project(directory: Path) -> Project:
    """Three corpora, one of them large enough for worker processes; trainings of seconds."""
    corpora = [
        {"name": name, "source": {"kind": "files", "paths": [str(directory / f"{name}.jsonl")]}}
        for name in ("topics", "bulk")
    ]
    corpora.append({"name": "stdlib", "source": {"kind": "python_docs", "max_bytes": 300_000}})
    often = {
        "checkpoint": {"every_tokens": 8192, "keep_last": 2},
        "evaluation": {"every_tokens": 32_768, "max_tokens": 8192},
        "samples": {"prompts": []},
    }
    settings = {
        "name": "long",
        "corpora": corpora,
        "raw": {"part_bytes": 2_000_000},
        "quality": "docs",
        "tokenizer": {"vocab_size": 512},
        "shards": {"validation_fraction": 0.002},
        "engine": {"workers": 2},
        "retention": {"runs": 4, "checkpoints": 1},
        "training": TRAINING | often | {"max_tokens": 65_536},
    }
    directory.mkdir(parents=True, exist_ok=True)
    return Project(directory, settings)


def run(directory: Path, minutes: float, seed: int) -> tuple[Long, list[str]]:
    """The whole run, and what is left of its processes."""
    port = free_port()
    long = Long(project(directory), random.Random(seed), port)
    long.write("topics", python_topics())
    long.change_all()
    status, said = long.project.run(job="retokenize")
    if status:
        raise SystemExit(said)
    serving = long.project.serving("dagster", "dev", "--host", "127.0.0.1", "--port", str(port))
    with serving as server, dg.DagsterInstance.from_config(str(long.project.home)) as instance:
        while not long.ask("{ version }"):
            if server.poll() is not None:
                raise SystemExit(f"dagster dev ended with {server.returncode}")
            time.sleep(1)
        long.begun = time.monotonic()
        long.done.clear()
        long.disturbed.clear()
        try:
            long.disturb(60 * minutes, instance)
            long.conclude(instance)
        except Exception:  # what was sampled is worth keeping
            long.findings.append(traceback.format_exc())
        if server.poll() is not None:
            long.findings.append(f"dagster dev ended with {server.returncode}")
    try:
        check_nothing_is_half_published(long.project)
    except (AssertionError, PipelineError) as error:
        long.findings.append(str(error))
    time.sleep(60)  # a code server whose proxy was killed waits for it so long
    return long, [line[:200] for line in processes(long.project).values()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.long_run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile everything again
    with tempfile.TemporaryDirectory() as directory:
        long, left = run(Path(directory, "project"), options.minutes, options.seed)
    long.findings += [f"left running: {line}" for line in left]
    result = {
        "minutes": options.minutes,
        "seed": options.seed,
        "done": dict(sorted(long.done.items())),
        "runs": long.samples[-1]["runs"],
        "growth": growth(long.samples),
        "findings": long.findings,
        "disturbed": long.disturbed,
        "samples": long.samples[:: -(-len(long.samples) // 240)],
    }
    record("long_run", result, ["dagster", "torch"])
    draw(result)
    return 1 if long.findings else 0


if __name__ == "__main__":
    sys.exit(main())
