"""The complete configuration of a run: reading it from YAML, and the part of it that decides the weights."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from trainer.config import unused
from trainer.config.base import AbsolutePath, Config, absolute_path
from trainer.config.bookkeeping import SamplesConfig
from trainer.config.data import DataConfig
from trainer.config.problems import requirement
from trainer.config.training import TrainingConfig
from trainer.system import yaml_file
from trainer.system.durable import read_json
from trainer.system.errors import TrainerError, reason
from trainer.system.paths import at_home
from trainer.system.run_directory import RunDirectory, with_present_places


class RunConfig(Config):
    """One run of the trainer."""

    run_dir: AbsolutePath
    """Directory of the run's checkpoints, metrics and plots."""
    data: DataConfig
    """What the run learns from."""
    training: TrainingConfig
    """The model and how it is trained."""
    name: str = ""
    """What people call the run; when empty, what its directory is called."""
    project: str | None = None
    """Project or experiment under which trackers list the run."""
    runs: AbsolutePath | None = None
    """Directory with the directories of runs whose states this run may go on from (training.shared_states).
    When not set, there are none.
    """
    lineage: dict[str, Any] = Field(default={})
    """Copied into each checkpoint and not interpreted."""

    @property
    def as_yaml(self) -> str:
        """The content of config.yaml."""
        text: str = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        return text

    @property
    def adapted_tokens(self) -> tuple[int, ...]:
        """The tokens whose rows in embedding and head LoRA trains."""
        training, chat = self.training, self.data.chat
        return chat.ids if training.lora and training.learns_tokens and chat else ()

    def with_training(self, **changes: Any) -> Self:
        """The same run with other settings of `training`, which must be valid."""
        return self.model_copy(update={"training": self.training.model_copy(update=changes)})

    @field_validator("training")
    @classmethod
    def _weights_are_found_from_any_directory(cls, training: TrainingConfig) -> TrainingConfig:
        source = training.pretrained
        if source is None or source.path is None:
            return training
        absolute = source.model_copy(update={"path": absolute_path(source.path)})
        return training.model_copy(update={"pretrained": absolute})

    @model_validator(mode="after")
    def _stages_read_known_corpora(self) -> Self:
        self.training.check_corpora([corpus.name for corpus in self.data.corpora])
        return self

    @model_validator(mode="after")
    def _has_the_weights_that_are_adapted(self) -> Self:
        if self.training.lora and not self.training.pretrained:
            raise ValueError(
                "training.lora needs pretrained weights: set training.pretrained, or leave lora out"
            )
        return self

    @model_validator(mode="after")
    def _answers_can_be_told(self) -> Self:
        if self.training.objective != "pretrain" and self.data.chat is None:
            raise ValueError(
                f"training.objective {self.training.objective} needs data.chat, the ids of control tokens: "
                "take a tokenizer that has them (`tokenizer: {chat: true}`)"
            )
        return self


# What the record of token shards says of all of them, and what decides the weights whatever the corpora.
RECORDED = ("tokenizer_sha256", "vocab_size", "bot_id", "eot_id")


def run_identity(
    config: RunConfig, precision: str, shard_hashes: dict[str, str], pretrained: str | None = None
) -> dict[str, Any]:
    """What decides the weights, as plain JSON: the settings without paths, and instead the content of the
    shards (`shard_hashes`, by corpus name) and the hash of the `pretrained` weights.

    `precision` is the one in use, which `auto` stands for.
    """
    data = config.data
    return {
        "training": {**config.training.decisive, "precision": precision, "pretrained": pretrained},
        "data": {
            **{key: getattr(data, key) for key in RECORDED},
            "chat": data.chat.model_dump() if data.chat else None,
            # Order breaks ties between corpora that are equally far behind their weights.
            "order": [corpus.name for corpus in data.corpora],
            "corpora": {
                corpus.name: {"weight": corpus.weight, "shards": shard_hashes[corpus.name]}
                for corpus in data.corpora
            },
        },
    }


def config_hash(identity: dict[str, Any]) -> str:
    """SHA-256 over canonical JSON."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def load_run_config(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """Reads a YAML file and applies `a.b=value` overrides, whose values are YAML.

    Raises TrainerError with the file, the key and what to change.
    """
    try:
        values = with_present_places(yaml_file.parse(Path(path).read_text(encoding="utf-8")), Path(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TrainerError(f"{path}: cannot be read as YAML: {reason(error)}") from error
    if not isinstance(values, dict):
        raise TrainerError(f"{path}: is not a mapping with the keys {', '.join(RunConfig.model_fields)}")
    for change in overrides or []:
        override(values, change)
    if isinstance(data := values.get("data"), dict) and "shards" in data:
        values["data"] = from_record(data)
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise TrainerError(f"{path}: {format_validation_error(error)}") from error


def run_config_of(checkpoint: Path) -> RunConfig:
    """The configuration of the run of a checkpoint. Raises TrainerError."""
    return load_run_config(RunDirectory.of(checkpoint.resolve()).config)


def from_record(data: dict[str, Any]) -> dict[str, Any]:
    """The section `data` with the content of the record that its key `shards` names, the shards.json of token
    shards, in place of that key. What is set stays.

    Raises TrainerError when the record cannot be read.
    """
    record = at_home(str(data["shards"]))
    written = {key: value for key, value in data.items() if key != "shards"}
    try:
        facts = read_json(record)
        shards = [
            (record.parent / next(iter(entry["files"])), entry["text_bytes"]) for entry in facts["shards"]
        ]
        recorded = {key: facts[key] for key in (*RECORDED, *({"chat"} & facts.keys()))}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise TrainerError(
            f"data.shards: {record} cannot be read as a record of token shards ({reason(error)}): name the "
            "shards.json that `python -m pipeline tokenize` writes"
        ) from error
    prefixes: dict[str, list[str]] = {"train": [], "validation": []}
    sizes = dict.fromkeys(prefixes, 0)
    for file, size in shards:
        split = file.parent.name
        if split in prefixes:
            prefixes[split].append(str(file.with_suffix("")))
            sizes[split] += size
    corpus = {"name": record.absolute().parent.name or "shards", "weight": 1, **prefixes}
    corpora = [
        corpus | {"validation_bytes": sizes["validation"], "not_given_back": facts.get("not_given_back", 0)}
    ]
    return {"tokenizer": str(record.parent), **recorded, "corpora": corpora, **written}


def load_to_train(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """As `load_run_config`, for a run that is to be trained: refuses settings that have no effect, and those
    for which the run is too short.
    """
    config = load_run_config(path, overrides)
    try:
        unused.check(config.training)
        config.training.check_length()
    except ValueError as error:
        raise TrainerError(f"{path}: {error}") from None
    return config


def format_validation_error(error: ValidationError) -> str:
    """Each key with what is wrong, in one line."""
    problems = (problem for problem in error.errors() if problem["type"] != "default_factory_not_called")
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'top level'}: {requirement(problem)}" for problem in problems
    )


def samples_of(given: dict[str, Any] | str) -> SamplesConfig:
    """The settings of samples, also from JSON. Raises TrainerError with the invalid one."""
    try:
        if isinstance(given, str):
            return SamplesConfig.model_validate_json(given)
        return SamplesConfig.model_validate(given)
    except ValidationError as error:
        raise TrainerError(f"samples: {format_validation_error(error)}") from error


def numbers(text: str) -> list[float]:
    """The numbers of an option, which are separated by commas. Raises TrainerError."""
    try:
        found = [float(number) for number in text.split(",")]
        if not all(map(math.isfinite, found)):
            raise ValueError
    except ValueError:
        raise TrainerError(f"{text!r}: give numbers that are separated by commas, such as .5,.5") from None
    return found


def override(values: dict[str, Any], change: str) -> None:
    """Applies `a.b=value`, whose value is YAML, to the settings. Raises TrainerError."""
    key, separator, text = change.partition("=")
    if not separator or not key:
        raise TrainerError(f"override {change!r} is not of the form key.subkey=value")
    *parents, last = key.split(".")
    at: Any = values
    try:
        for parent in parents:
            place: Any = int(parent) if isinstance(at, list) else parent
            if isinstance(at, dict) and at.get(parent) is None:
                at[parent] = {}
            elif parent == "model" and isinstance(at[parent], str):  # the name of a size
                at[parent] = {"size": at[parent]}
            at = at[place]
        at[int(last) if isinstance(at, list) else last] = yaml_file.parse(text)
    except (AttributeError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
        raise TrainerError(f"override {change!r} cannot be applied: {reason(error)}") from error
