"""A small but whole project on real text: DAGSTER_HOME, a recipe, a corpus, the verbatim command."""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
import yaml

from pipeline.recipe import variants
from pipeline.recipe.loading import load_recipe
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.store import keys
from pipeline.store.store import Store

ROOT = Path(__file__).parents[2]
OURS = ("DAGSTER", "GROUNDWORK")  # what names of variables begin with that a test sets itself
TRAINING = {
    "model": {"n_layers": 2, "d_model": 64, "n_heads": 2, "n_kv_heads": 1, "d_ff": 176, "qk_norm": False},
    "seq_len": 64,
    "global_batch_tokens": 512,
    "micro_batch_size": 8,
    "max_tokens": 16_384,
    "seed": 1,
    "optimizer": {"kind": "adamw", "lr": 3e-3},
    "schedule": {"kind": "cosine", "warmup_tokens": 2048},
    "checkpoint": {"every_tokens": 4096, "keep_last": 2},
    "evaluation": {"every_tokens": 8192},
    "samples": {"prompts": ["Return the"], "max_new_tokens": 16},
    "threads": 1,
}


# How much longer to wait than an idle machine takes. Others run meanwhile, and a deadline only ends a hang.
PATIENCE = 5


@dataclass
class Project:
    """A DAGSTER_HOME, a recipe and a corpus of their own; commands run in it as a user would type them."""

    directory: Path
    recipe: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def store(self) -> Store:
        """The store as another run of the recipe sees it."""
        return self.store_of({})

    def store_of(self, overrides: Mapping[str, Any]) -> Store:
        """The store as a run with these overrides sees it."""
        written, changed = load_recipe(self.write_recipe()), load_recipe(self.write_recipe(), dict(overrides))
        return Store(self.home / "store", RecipeVersions(changed, written))

    def variant_store(self, name: str) -> Store:
        """The store as a run of a variant, or of a section, sees it."""
        return Store(self.home / "store", RecipeVersions(variants.load(self.write_recipe(), name)))

    def write_recipe(self) -> Path:
        path, written = self.directory / "recipe.yaml", yaml.safe_dump(self.recipe)
        if not path.exists() or path.read_text() != written:  # a run may be reading it
            path.write_text(written)
        return path

    def environment(self) -> dict[str, str]:
        path = self.write_recipe()
        self.home.mkdir(exist_ok=True)
        shutil.copy(ROOT / "dagster_home" / "dagster.yaml", self.home)
        settings = {
            "DAGSTER_HOME": str(self.home),
            "GROUNDWORK_RECIPE": str(path),
            "DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME": "pipeline.definitions",
            "DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY": str(ROOT),
            "PYTHONWARNINGS": "ignore:Function",
        }
        return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | settings

    def enter(self, patch: pytest.MonkeyPatch) -> None:
        """Makes this process one of the project's."""
        for name, value in self.environment().items():
            patch.setenv(name, value)

    def copied(self, directory: Path) -> "Project":
        """A project of the same recipe and corpus, whose store is a copy, and which Dagster has not seen."""
        project = Project(directory, yaml.safe_load(yaml.safe_dump(self.recipe)))
        project.home.mkdir(parents=True)
        subprocess.run(["cp", "-r", str(self.home / "store"), str(project.home)], check=True)
        project.environment()
        return project

    def start(self, *arguments: str, job: str = "pretrain") -> "subprocess.Popen[str]":
        command = [str(Path(sys.executable).with_name("dagster")), "job", "execute", "-j", job, *arguments]
        return subprocess.Popen(
            command,
            env=self.environment(),
            cwd=self.directory,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *arguments: str, job: str = "pretrain") -> tuple[int, str]:
        """`dagster job execute -j <job>`: its exit status and what it said."""
        process = self.start(*arguments, job=job)
        _, said = process.communicate(timeout=300 * PATIENCE)
        return process.returncode, said

    def make(self, *arguments: str, job: str = "pretrain") -> str:
        """As `run`, for a run that has to succeed: what it said."""
        status, said = self.run(*arguments, job=job)
        assert status == 0, said
        return said

    def command(self, *arguments: str) -> str:
        """`python -m pipeline ...`: what it prints."""
        return self.python("pipeline", *arguments)

    def python(self, *arguments: str) -> str:
        """`python -m ...`: what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            env=self.environment(),
            cwd=self.directory,
            text=True,
            capture_output=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run_until(
        self, reached: Callable[[], bool], number: signal.Signals = signal.SIGKILL, job: str = "pretrain"
    ) -> None:
        """Starts the job and sends it a signal as soon as `reached()`."""
        process = self.start(job=job)
        deadline = time.monotonic() + 120 * PATIENCE
        while not reached():
            assert process.poll() is None, f"the run ended too early: {process.communicate()[1]}"
            assert time.monotonic() < deadline, "the run never got there"
            time.sleep(0.005)
        process.send_signal(number)
        process.communicate(timeout=60 * PATIENCE)

    @contextmanager
    def serving(self, command: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        """`dagster dev`, or the daemon. Unless the test kills it, Ctrl-C ends it, and what it started is
        killed. What it says is in server.log.
        """
        line = [str(Path(sys.executable).with_name(command)), *arguments, "-m", "pipeline.definitions"]
        with (self.directory / "server.log").open("a") as log:
            # A test that runs in the background has SIGINT ignored, and so would its children.
            server = subprocess.Popen(
                line,
                cwd=ROOT,
                env=self.environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_hears_interrupts,
            )
        try:
            yield server
        finally:
            if server.poll() is None:
                _interrupt(server)
                with suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)

    def content(self, overrides: dict[str, Any] | None = None) -> Mapping[str, str]:
        """What the run made, by content: the data version of each asset and the bytes of the weights."""
        store = self.store_of(overrides or {})
        shards = [keys.token_shards(corpus["name"]) for corpus in self.recipe["corpora"]]
        made = [keys.DEDUP, keys.TOKENIZER, *shards]
        versions = {str(key): store.current(key).data_version for key in made}
        exported = store.current(keys.EXPORTED_MODEL)
        weights = next(part.files["model.safetensors"].sha256 for part in exported.parts)
        return versions | {"weights": weights}


def make_project(directory: Path) -> Project:
    """A project on the standard library's documentation: two sources, small parts."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "topics.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(document) + "\n" for document in python_topics())
    recipe = {
        "name": "tiny",
        "corpora": [
            {"name": "topics", "source": {"kind": "files", "paths": [str(directory / "topics.jsonl")]}},
            {"name": "stdlib", "source": {"kind": "python_docs", "max_bytes": 300_000}},
        ],
        "raw": {"part_bytes": 100_000},
        "quality": "docs",
        "tokenizer": {"vocab_size": 512},
        "shards": {"validation_fraction": 0.1},
        "training": copy.deepcopy(TRAINING),  # a test may change its own
    }
    return Project(directory, recipe)


def make_chat_project(directory: Path) -> Project:
    """A project whose model is taught to answer, and which of two answers is better."""
    project = make_project(directory)
    project.recipe["tokenizer"]["chat"] = True
    sections = {"sft": ("chat", conversations()), "dpo": ("preferences", preferences())}
    for section, (form, rows) in sections.items():
        path = directory / f"{form}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        source = {"kind": "files", "paths": [str(path)], "format": form}
        project.recipe.setdefault("post_training", {})[section] = {
            "corpora": [{"name": f"{section}_words", "source": source}],
            "training": {"optimizer": {"lr": 3e-3 if section == "sft" else 3e-4}},
        }
    project.recipe["post_training"]["sft"]["rehearsal"] = 0.2
    return project


def conversations() -> list[dict[str, Any]]:
    """Short questions about words of Python's language reference, with their answers."""
    words = sorted({word for text in topics.values() for word in text.split() if word.isalpha()})
    return [
        {"id": word, "messages": _asked(f"Length of {word}?", f"It is {len(word)}.")}
        for word in words
        if 3 < len(word) < 8
    ]


def preferences() -> list[dict[str, Any]]:
    """The right length, and a wrong one."""
    pairs = []
    for one in conversations():
        question, chosen = one["messages"]
        wrong = f"It is {len(one['id']) + 1}."
        pairs.append({"prompt": [question], "chosen": [chosen], "rejected": [{**chosen, "content": wrong}]})
    return pairs


def _asked(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def until(
    reached: Callable[[], bool],
    seconds: float,
    what: Callable[[], object] = lambda: "it did not happen in time",
) -> None:
    deadline = time.monotonic() + seconds * PATIENCE
    while not reached():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def _interrupt(server: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C, and again after a minute: Dagster loses one that comes while Python collects garbage."""
    for _ in range(PATIENCE):
        server.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            server.wait(60)
            return
    raise AssertionError(f"still running after {PATIENCE} interrupts")


def _hears_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def python_topics() -> list[dict[str, str]]:
    """80 chapters of Python's language reference, a near-duplicate, an exact one, an address to find."""
    documents = [{"id": name, "text": text} for name, text in sorted(topics.items())]
    documents.append({"id": "again", "text": documents[3]["text"]})
    documents.append({"id": "almost", "text": documents[5]["text"] + "\nOne more line at the end."})
    documents[7]["text"] += "\nWrite to jane.doe@example.com about it."
    return documents
