"""Looks up what a checkpoint was made from, and which checkpoints saw a corpus."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pipeline.store import keys
from pipeline.store.cleanup.old_runs import lineage_in
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.keys import RUNS, Key
from pipeline.store.store import Store
from pipeline.store.training_runs import checkpoint_name, deleted_run, run_beginning, run_histories
from trainer.config import ModelConfig, RunConfig, load_run_config
from trainer.data.order import sample_order
from trainer.system.durable import read_json
from trainer.system.errors import TrainerError
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import MANIFEST, MERGED, NAME_LENGTH, OPTIMIZER_FILES, RunHistory, step_name


class LineageError(PipelineError):
    """The checkpoint, corpus or document does not exist; the message says which ones do."""


@dataclass(frozen=True)
class TrainedModel:
    """A model after some tokens of its training, as its lineage tells."""

    lineage: Mapping[str, Any]

    @property
    def corpora(self) -> list[str]:
        """The names of the corpora of its recipe."""
        return [corpus["name"] for corpus in self.lineage["recipe"]["corpora"]]

    @property
    def parameters(self) -> int:
        """How many it has."""
        model = ModelConfig.model_validate(self.lineage["recipe"]["training"]["model"])
        return model.parameters(self.lineage["assets"][keys.TOKENIZER]["counts"]["entries"])

    @property
    def tokens(self) -> int:
        return self.lineage["training"]["tokens"]

    @property
    def corpus_tokens(self) -> dict[str, int]:
        """How many tokens of each corpus the run had trained on by this step."""
        return self.lineage["training"]["corpus_tokens"]

    @property
    def libraries(self) -> dict[str, str]:
        """The versions that trained it. Empty if the checkpoint was deleted: they may have changed since."""
        return self.lineage["training"].get("libraries", {})

    def epochs(self, corpus: str) -> float:
        """How often the run had seen the training tokens of a corpus by this step."""
        trained_on, name = self, corpus
        if keys.token_shards(corpus) not in self.lineage["assets"]:  # it is read again
            trained_on, name = self.pretraining, corpus.removeprefix(keys.REHEARSAL)
        counts = trained_on.lineage["assets"][keys.token_shards(name)]["counts"]
        return self.corpus_tokens.get(corpus, 0) / max(counts["train_tokens"], 1)

    @property
    def lora(self) -> str:
        """`LoRA of rank 8, alpha 16` if it was trained so. Empty otherwise."""
        settings = self.lineage["recipe"]["training"].get("lora")
        return f"LoRA of rank {settings['rank']}, alpha {settings['alpha']:g}" if settings else ""

    @property
    def base(self) -> "TrainedModel | None":
        """The model whose weights training started from, if its lineage is known."""
        lineage = self.lineage.get("pretrained", {}).get("lineage")
        return TrainedModel(lineage) if lineage else None

    @property
    def bases(self) -> list["TrainedModel"]:
        """The base, its base and so on, as far as they are known."""
        return [self.base, *self.base.bases] if self.base else []

    @property
    def merged(self) -> list[dict[str, Any]]:
        """The checkpoints that it is the mean of, each with its `checkpoint`, `sha256`, `share` and `tokens`;
        and with its `lineage`, where that is not the same. Empty unless it is a mean.
        """
        return self.lineage.get(MERGED, [])

    @property
    def mean(self) -> str:
        """`the mean of 8 checkpoints, after 600,000 to 700,000 tokens` if it is one. Empty otherwise."""
        tokens = [one["tokens"] for one in self.merged]
        if not tokens:
            return ""
        return f"the mean of {len(tokens)} checkpoints, after {min(tokens):,} to {max(tokens):,} tokens"

    @property
    def pretraining(self) -> "TrainedModel":
        """The model before `post_training`, if this is the model of a section; else this model."""
        return self.base.pretraining if self.base and "post_training" in self.lineage else self

    @property
    def ancestors(self) -> list["TrainedModel"]:
        """The base, its base and so on, as far as known; of a mean, its checkpoints of other trainings."""
        others = [TrainedModel(one["lineage"]) for one in self.merged if "lineage" in one]
        return [each for one in (self.base, *others) if one for each in (one, *one.ancestors)]

    @property
    def described(self) -> str:
        """The name of the recipe and how long it had been trained: it may be in no run of this store."""
        return f"{self.lineage['recipe']['name']} after {self.tokens:,} tokens"


@dataclass(frozen=True)
class Checkpoint(TrainedModel):
    """A step of a run and its lineage, from the run's config where it is not `saved` on disk."""

    run: Path
    step: int
    saved: bool

    @property
    def name(self) -> str:
        """The name in the UI, such as `6ddca120-00000020`."""
        return step_name(self.run.name[:NAME_LENGTH], self.step)

    @property
    def path(self) -> Path:
        return RunDirectory(self.run).checkpoint(self.step)

    @property
    def is_model_only(self) -> bool:
        """Whether it lacks the optimizer's state, without which no training resumes. False if damaged."""
        try:
            files = read_json(self.path / MANIFEST)["files"]
        except (OSError, ValueError, KeyError):
            return False
        return not any(fnmatch(name, OPTIMIZER_FILES) for name in files)


def checkpoint(store: Store, named: str) -> Checkpoint:
    """Finds a checkpoint by its path or its name in the UI (`<run>-<step>`, also `<run>/<step>`); the first
    digits of the run are enough. A run alone is its newest checkpoint. Raises LineageError and
    UnknownRunError.
    """
    path = Path(named)
    if (path / "lineage.json").is_file():
        return read(path.resolve())
    digits, _, step = named.replace("/", "-").rpartition("-")
    if digits and step.isdigit():
        if run := run_beginning(store, digits):
            place = run.checkpoints().get(int(step))
            return read(place) if place else planned(run_config(run.path), int(step))
        if record := deleted_run(store, digits):
            directory = store.root / RUNS / record.stem
            return planned(load_run_config(record).model_copy(update={"run_dir": directory}), int(step))
    run = run_beginning(store, named) if named.isalnum() else None
    if run is None and (path / "config.yaml").is_file():
        run = RunHistory(path.resolve())
    if run and (saved := run.checkpoints()):
        return read(saved[max(saved)])
    known = list(map(checkpoint_name, run.checkpoints().values())) if run else []
    newest = ", ".join((known or [one.name for one in checkpoints(store)])[-3:]) or "none"
    raise LineageError(
        f"{named!r} is not a checkpoint: give its directory, or its name in the UI. On disk: {newest}"
    )


def read(path: Path) -> Checkpoint:
    """The checkpoint in this directory. Raises LineageError when its lineage is missing or damaged."""
    try:
        lineage = lineage_in(read_json(path / "lineage.json"))
        return Checkpoint(lineage, path.parents[1], lineage["training"]["step"], saved=True)
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        why = f"{path / 'lineage.json'} is missing or damaged ({first_line(error)})"
        raise LineageError(f"{why}: put it back from a copy, or remove {path}") from error


def checkpoints(store: Store) -> Iterator[Checkpoint]:
    """All checkpoints on disk, run by run, each run's from the first step to the last."""
    for run in run_histories(store):
        yield from map(read, run.checkpoints().values())


@dataclass(frozen=True)
class Sighting:
    """A checkpoint that was trained on a corpus, in its own training or in that of an ancestor: `by`
    whichever it was.
    """

    checkpoint: Checkpoint
    by: TrainedModel

    @property
    def through(self) -> str | None:
        """The description of the ancestor; None if the checkpoint itself was trained on the corpus."""
        return None if self.by is self.checkpoint else self.by.described


def that_saw(store: Store, corpus: str, version: str | None) -> list[Sighting]:
    """The checkpoints on disk that were trained on a corpus, or that started from the weights of a model that
    was. A `version` leaves only those that were trained on it: the first digits of the data version of any
    stage of the corpus, or of the revision of its source.
    """
    found: list[Sighting] = []
    known: set[str] = set()
    for one in checkpoints(store):
        for by in (one, *one.ancestors):
            known |= by.corpus_tokens.keys()
            if by.corpus_tokens.get(corpus) and (
                version is None or any(name.startswith(version) for name in versions_of(by, corpus))
            ):
                found.append(Sighting(one, by))
    if corpus not in known:
        hint = f"choose from {', '.join(sorted(known))}" if known else "there are no checkpoints"
        raise LineageError(f"no checkpoint on disk was trained on a corpus {corpus!r}; {hint}")
    return found


def versions_of(trained: TrainedModel, corpus: str) -> list[str]:
    """A corpus's data version of each stage, and the version and revision of its source."""
    assets = trained.lineage["assets"]
    stages = [path for path in assets if Key.from_path(path).corpus == corpus]
    source = assets[keys.raw(corpus)].get("inputs", {})
    return [*(assets[path]["data_version"] for path in stages), *source.values()]


def run_config(run: Path) -> RunConfig:
    """The configuration that a run was last started with. Raises LineageError when it is damaged."""
    try:
        return load_run_config(run / "config.yaml").model_copy(update={"run_dir": run})
    except TrainerError as error:
        raise LineageError(f"{first_line(error)}: put it back from a copy") from error


def planned(config: RunConfig, step: int) -> Checkpoint:
    """A step of a run, on disk or not: its lineage follows from the run's config. Raises LineageError."""
    training = config.training
    if not 0 < step <= training.steps:
        raise LineageError(f"run {config.run_dir.name} has steps 1 to {training.steps}, not {step}")
    curriculum, weights = training.curriculum, {corpus.name: corpus.weight for corpus in config.data.corpora}
    tokens = sample_order(training, weights, [1] * len(weights)).tokens(curriculum.samples(step))
    facts = {
        "step": step,
        "tokens": curriculum.tokens(step),
        "corpus_tokens": dict(zip(weights, tokens.tolist(), strict=True)),
        "config": training.model_dump(mode="json"),
    }
    return Checkpoint({**config.lineage, "training": facts}, config.run_dir, step, saved=False)
