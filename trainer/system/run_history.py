"""Training runs after the fact: their names, and what their configuration, metrics and checkpoints tell.

A directory of runs holds a directory for each, named by 16 hex digits. The first eight are the run's name
in the UI (`6ddca120`); with a step they name a checkpoint (`6ddca120-00000020`).
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from trainer.system import yaml_file
from trainer.system.durable import read_json, read_json_lines
from trainer.system.errors import TrainerError, reason
from trainer.system.run_directory import RunDirectory, with_present_places

NAME_LENGTH = 8  # hex digits of a run's directory in its name
NAME = re.compile(r"([0-9a-f]{4,})(?:[-/](\d{1,9}))?")
MODEL_NAMES = (
    "the directory of an exported model, of a checkpoint or of a run, or the name in the UI of a run "
    "(6ddca120) or of a checkpoint (6ddca120-00000020); a run stands for its newest checkpoint"
)
STORED = re.compile(r"[0-9a-f]{16}")
STEP = re.compile(r"step-(\d{8,})")
MANIFEST = "manifest.json"  # written last: a checkpoint without it is not complete
# Keys of the manifest of a checkpoint that has lost its optimizer's state: the files that are gone, and the
# sha256 of the manifest before.
DROPPED, PUBLISHED = "dropped", "published"
OPTIMIZER_FILES = "optimizer*.safetensors"
# Key of the lineage of a mean: the checkpoints that were merged.
MERGED = "merged"
# Settings of a recipe that change no result.
NOT_COMPARED = ("name", "checks", "dedup_guard", "engine", "launch", "token_index")
LARGEST_EXPONENT = 700.0  # of a loss that has exploded; beyond 709 a float overflows
NAMES_SHOWN, SHOWN_OF_PATH = 5, 60  # names, and characters of a path, in a message


def step_name(run: str, step: int) -> str:
    """The name in the UI of a checkpoint: of a step of the run with this name."""
    return f"{run}-{step:08d}"


class RunHistory:
    """A run, or with `until_step` its beginning. Files are read when they are asked for."""

    def __init__(self, path: Path, until_step: int | None = None) -> None:
        self.directory = RunDirectory(path)
        self.path = path
        self.until_step = until_step

    @property
    def name(self) -> str:
        """As in the UI, for a run of a store; else that of the directory. A beginning has its step, too."""
        name = self.path.resolve().name
        name = name[:NAME_LENGTH] if STORED.fullmatch(name) else name
        return name if self.until_step is None else step_name(name, self.until_step)

    @property
    def title(self) -> str:
        """A run's name for people and in the UI: `mine strict 6ddca120`. A beginning has its step, too."""
        named: str = self.config.get("name", "")
        if not named or self.until_step is None:
            return named or self.name
        return step_name(named, self.until_step)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Raises TrainerError when the file is not the configuration of a run."""
        try:
            text = self.directory.config.read_text(encoding="utf-8")
            config: dict[str, Any] = with_present_places(yaml_file.parse(text), self.directory.config)
            _ = config["training"]["max_tokens"]
        except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError) as error:
            raise TrainerError(
                f"{self.directory.config}: cannot be read as the configuration of a run: {reason(error)}"
            ) from error
        return config

    @property
    def recipe(self) -> str:
        """The name of the recipe, empty without one."""
        return self.config.get("lineage", {}).get("recipe", {}).get("name", "")

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl, up to `until_step`."""
        records = read_json_lines(self.directory.metrics)
        return [one for one in records if self.until_step is None or one["step"] <= self.until_step]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == "train"]

    @property
    def validations(self) -> list[dict[str, Any]]:
        return [one for one in self.records if one["kind"] == "evaluation" and one["loss"] is not None]

    @property
    def tokens(self) -> list[int]:
        """The tokens so far at each logged step."""
        return [step["tokens"] for step in self.steps]

    @property
    def seconds(self) -> list[float]:
        """The time in steps so far at each logged step."""
        seconds = [0.0]
        for (before, tokens), step in zip(pairwise([0, *self.tokens]), self.steps, strict=True):
            seconds.append(seconds[-1] + (tokens - before) / step["tokens_per_second"])
        return seconds[1:]

    @property
    def losses(self) -> list[float]:
        """The running mean of the training loss at each logged step."""
        return running_mean([step["loss"] for step in self.steps])

    @property
    def settings(self) -> dict[str, str]:
        """The settings that decide what is trained: of the recipe and the training or, for a run without a
        recipe, of its configuration. Paths are left out where a hash identifies their content.
        """
        recipe = self.config.get("lineage", {}).get("recipe")
        if recipe:
            kept = {name: value for name, value in recipe.items() if name not in NOT_COMPARED}
            return flat(kept | {"training": self.config["training"]})
        settings = flat(
            {key: value for key, value in self.config.items() if key not in ("run_dir", "name", "lineage")}
        )
        paths = {"data.tokenizer"}
        for key in (key for key, value in settings.items() if key.endswith(".content") and value != "null"):
            paths |= {key.removesuffix("content") + split for split in ("train", "validation")}
        return {key: value for key, value in settings.items() if key not in paths}

    @property
    def trunks(self) -> list[dict[str, Any]]:
        """The states of other runs that this one went on from, the newest last: `run`, `step` and `tokens` of
        each. Empty without a checkpoint on disk.
        """
        saved = self.checkpoints()
        with suppress(OSError, ValueError, KeyError):
            facts = read_json(saved[max(saved, default=0)] / "lineage.json")
            return facts["training"]["trunks"]
        return []

    @property
    def reused_tokens(self) -> int:
        """The tokens that other runs trained. An overtaken run may go on from the run that overtook it."""
        before, reused = 0, 0
        for trunk in self.trunks:
            reused += (trunk["tokens"] - before) * (trunk["run"] != self.name)
            before = trunk["tokens"]
        return reused

    @property
    def newest_checkpoint(self) -> Path:
        """The newest on disk or, of a beginning, that of its last step. Raises TrainerError."""
        saved = self.checkpoints()
        wanted = max(saved, default=0) if self.until_step is None else self.until_step
        if wanted not in saved:
            if not self.directory.config.is_file():
                raise TrainerError(f"{self.path}: neither a run nor a checkpoint of one. Give {MODEL_NAMES}")
            steps = ", ".join(map(str, saved)) or "none"
            raise TrainerError(
                f"{self.name}: this checkpoint is not on disk; steps of the run that are: {steps}"
            )
        return saved[wanted]

    def checkpoints(self) -> dict[int, Path]:
        """The complete checkpoints on disk by step, the newest last."""
        manifests = sorted(self.directory.checkpoints.glob(f"step-*/{MANIFEST}"))
        found = [(STEP.fullmatch(manifest.parent.name), manifest.parent) for manifest in manifests]
        return {int(match[1]): path for match, path in found if match}


def checkpoint_sha256(checkpoint: Path) -> str:
    """What stands for a checkpoint among the inputs of what is made of it: the sha256 of the manifest with
    which it was published, also after it has lost its optimizer's state. Raises OSError without a manifest.
    """
    content = (checkpoint / MANIFEST).read_bytes()
    with suppress(ValueError, AttributeError):
        published: str | None = json.loads(content).get(PUBLISHED)
        if published:
            return published
    return hashlib.sha256(content).hexdigest()


def reported(checkpoint: Path, state: Mapping[str, Any], files: Mapping[str, Any]) -> dict[str, Any]:
    """What a training reports of a checkpoint: `state` is its state.json, and `files` are those of its
    manifest.
    """
    evaluation = state["evaluation"] or {}
    return {
        "step": state["step"],
        "tokens": state["tokens"],
        "path": str(checkpoint),
        "data_version": model_version(files),
        "loss": state["loss"],
        "validation_loss": evaluation.get("loss"),
        "perplexity": evaluation.get("perplexity"),
        "bits_per_byte": evaluation.get("bits_per_byte"),
    }


def model_version(files: Mapping[str, Any]) -> str:
    """The sha256 of the names and hashes of the exported model's files: equal for equal models."""
    model = {name: entry["sha256"] for name, entry in files.items() if name.startswith("hf/")}
    return hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()


def histories(runs: Path) -> list[RunHistory]:
    """The runs in a directory of runs, by their names."""
    return [RunHistory(config.parent) for config in sorted(runs.glob("[!.]*/config.yaml"))]


def find(runs: Path, text: str) -> RunHistory:
    """The run in a directory of runs that has a name or its first digits; of a checkpoint's name, the run up
    to its step. Raises TrainerError for a name that no run or more than one has.
    """
    name = NAME.fullmatch(text)
    found = the_one(runs, name[1]) if name else None
    if name and found:
        return RunHistory(found.path, int(name[2]) if name[2] else None)
    newest = sorted(histories(runs), key=lambda run: run.path.stat().st_mtime)[-NAMES_SHOWN:]
    names = ", ".join(run.name for run in newest) or "none"
    raise TrainerError(
        f"{text!r}: no run of this name in {runs} (GROUNDWORK_STORE names another store). "
        f"The newest runs: {names}"
    )


def the_one(runs: Path, digits: str) -> RunHistory | None:
    """The run whose directory's name begins so. Raises TrainerError when several do."""
    found = [run for run in histories(runs) if run.path.name.startswith(digits)]
    if len(found) > 1:
        raise TrainerError(f"{digits!r} may be {' or '.join(run.path.name for run in found)}: add digits")
    return found[0] if found else None


def at(path: Path) -> RunHistory | None:
    """The run whose directory holds a path, up to the step of a checkpoint in the path; None if none does."""
    absolute = path.absolute()
    steps = [match for part in reversed(absolute.parts) if (match := STEP.fullmatch(part))]
    for place in (absolute, *list(absolute.parents)[:3]):
        if RunDirectory(place).config.is_file():
            return RunHistory(place, int(steps[0][1]) if steps else None)
    return None


def is_name(text: str) -> bool:
    """Whether a text is a name in the UI. `reproduce NAME` writes a folder of that name, which holds no
    run and no model.
    """
    path = path_of(text)
    is_place = path.exists() and (at(path) or (path / "config.json").exists())
    return bool(NAME.fullmatch(text)) and not is_place


def path_of(text: str) -> Path:
    """Raises TrainerError for text that cannot be a path: too long, or with a NUL in it."""
    path = Path(text)
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # `exists` does not raise from Python 3.14 on
    except (OSError, ValueError) as error:
        raise TrainerError(f"{text[:SHOWN_OF_PATH]!r} is not a path: {error}") from None
    return path


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys of the settings that are not the same everywhere."""
    keys = sorted({key for one in settings for key in one})
    return [key for key in keys if len({one.get(key) for one in settings}) > 1]


def flat(value: Any, key: str = "") -> dict[str, str]:
    """`{"a": {"b": 1}}` to `{"a.b": "1"}`; list entries that have a `name` are keyed by it."""
    if isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value):
        value = {
            item["name"]: {name: inner for name, inner in item.items() if name != "name"} for item in value
        }
    if not isinstance(value, dict) or not value:
        return {key: value if isinstance(value, str) else json.dumps(value, sort_keys=True)}
    texts: dict[str, str] = {}
    for name, inner in value.items():
        texts |= flat(inner, f"{key}.{name}" if key else name)
    return texts


def running_mean(losses: Sequence[float | None]) -> list[float]:
    """The exponential moving average over about a fortieth of the losses, corrected for its start as in Adam.

    Passes over losses that are None or not finite, which are those of steps that fp16 skipped.
    """
    decay = 1 - 1 / max(1.0, len(losses) / 40)
    total, weight, means = 0.0, 0.0, []
    for loss in losses:
        if loss is not None and math.isfinite(loss):
            total, weight = decay * total + loss, decay * weight + 1
        means.append(total / weight if weight else math.nan)
    return means


def bits_shown(bits: float | None) -> str:
    """Bits per byte of a line for a person; None where the tokenizer does not give the text back."""
    return "no bits per byte, since the tokenizer loses text" if bits is None else f"{bits:.4f} bits per byte"


def perplexity(loss: float) -> float:
    """e to the `loss` in nats a token."""
    return math.exp(min(loss, LARGEST_EXPONENT))
