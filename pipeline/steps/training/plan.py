"""Token shards -> a training run: its configuration, its directory and its inputs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.steps.lineage import record
from pipeline.steps.lineage.checkpoints import Checkpoint, checkpoint
from pipeline.steps.stage import RecipeStage
from pipeline.steps.tokens.shards import COMPARED, LOST, named
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.steps.training import initial_weights, mixture
from pipeline.steps.training.effort import REUSED
from pipeline.steps.training.launcher import run_trainer
from pipeline.store import keys, locks
from pipeline.store.draft import Draft
from pipeline.store.errors import PipelineError
from pipeline.store.keys import RUNS, Key
from pipeline.store.manifest import Part, Version
from pipeline.store.store import Store
from pipeline.store.training_runs import checkpoint_name, run_histories
from pipeline.store.work import Work
from trainer.config import ChatIds, CorpusShards, DataConfig, PretrainedConfig, RunConfig, TrainingConfig
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG
from trainer.data.shards import bin_path, idx_path
from trainer.system.durable import read_json, write_atomically
from trainer.system.errors import TrainerError
from trainer.system.run_history import NAME_LENGTH, RunHistory

VERSION = "train-2"
RESULTS = ("step", "tokens", "loss", "validation_loss", "perplexity", "bits_per_byte", "data_version")


@dataclass(frozen=True)
class PlannedRun:
    """A training run. The same work has the same directory, so an interrupted run is found again and resumed.
    What does not change what is learned (how often to save, what to sample) may change in between.
    """

    work: Work
    config: RunConfig

    @property
    def name(self) -> str:
        return self.work.fingerprint[:NAME_LENGTH]

    @property
    def config_path(self) -> Path:
        return self.config.run_dir / "config.yaml"

    def write_config(self) -> Path:
        """Writes the file that `python -m trainer` reads."""
        write_atomically(self.config_path, self.config.as_yaml)
        return self.config_path


@dataclass(frozen=True)
class Settled:
    """A recipe with what its `shards` and its base decide: how long it trains, and from which weights, whose
    path is in `training`.
    """

    recipe: Recipe
    shards: dict[str, Version]
    training: TrainingConfig


def settled(store: Store, recipe: Recipe) -> Settled:
    """Raises StoreError when a corpus has no shards yet, and PipelineError."""
    shards = {name: store.current(keys.token_shards(name)) for name in recipe.corpus_names}
    if recipe.tuning is None:
        return Settled(recipe, shards, initial_weights.located(recipe))
    recipe = with_length(recipe, shards, recipe.tuning.epochs)
    weights = result(store, store.current(keys.BASE_MODEL))["checkpoint"] / "hf"
    store.files.fetch_folder(weights)
    pretrained = PretrainedConfig(path=weights)
    return Settled(recipe, shards, recipe.training.model_copy(update={"pretrained": pretrained}))


def with_length(recipe: Recipe, shards: Mapping[str, Version], epochs: float) -> Recipe:
    """The recipe of a section of `post_training`, which is as long as its shards and `epochs` make it."""
    tokens = sum(version.counts["train_tokens"] for version in shards.values())
    return recipe.trained_for(round(epochs * tokens / (1 - recipe.rehearsal)))


def plan(store: Store, recipe: Recipe, name: str = "") -> PlannedRun:
    """The run that the recipe describes on its shards, called `name` or as the recipe. Raises PipelineError
    when there is nothing to train or validate on, or too little for the settings of a section.
    """
    found = settled(store, recipe)
    try:
        found.training.check_length()
    except ValueError as error:  # of a section, whose length its text decides
        raise PipelineError(f"post_training.{recipe.section}.training.{error}") from None
    work, training = training_work(store, found), found.training
    run_dir = store.root / RUNS / work.name
    config = RunConfig(
        run_dir=run_dir,
        name=_first_name(run_dir) or f"{name or recipe.name} {work.fingerprint[:NAME_LENGTH]}",
        data=_data(store, found),
        training=training,
        project=recipe.name,
        runs=store.root / RUNS,
        lineage=record.of_recipe(store, recipe) | initial_weights.origin(store, training),
    )
    return PlannedRun(work, config)


def _first_name(run_dir: Path) -> str:
    """The name with which a training began, by which trackers know its curves; empty if it has not begun."""
    try:
        return str(RunHistory(run_dir).config["name"])
    except (TrainerError, KeyError):
        return ""


class PretrainedModel(RecipeStage):
    """What a training run ends with, or the mean of its last checkpoints."""

    name = keys.PRETRAINED_MODEL

    @property
    def deciding(self) -> Any:
        return _decisive(self.recipe), self.recipe.training.averaging

    @property
    def inputs(self) -> Sequence[Key]:
        read = [keys.TOKENIZER, *map(keys.token_shards, self.recipe.corpus_names)]
        if self.recipe.tuning:
            read += [keys.BASE_MODEL, *map(keys.base_shards, _rehearsed(self.recipe))]
        return read

    def work(self, store: Store) -> Work:
        """Raises PipelineError."""
        found = settled(store, self.recipe)
        trained, steps = training_work(store, found), found.training.averaged_steps
        return replace(trained, params={**trained.params, "mean_of_steps": steps}) if steps else trained


def training_work(store: Store, found: Settled) -> Work:
    """The training, which no mean of its checkpoints changes. Raises PipelineError."""
    params = _decisive(found.recipe)
    params["training"]["pretrained"] = initial_weights.identity(store, found.training.pretrained)
    inputs = PretrainedModel(found.recipe).inputs
    return Work(keys.PRETRAINED_MODEL, VERSION, params, store.data_versions(inputs))


def _rehearsed(recipe: Recipe) -> list[str]:
    """The corpora of the pretraining that are read again."""
    return list(recipe.pretraining.weights) if recipe.rehearsal else []


def _decisive(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe that decide its training run, and with it where variants part."""
    tuning = recipe.tuning
    section = {"epochs": tuning.epochs, "rehearsal": recipe.rehearsal} if tuning else None
    return {
        "training": recipe.training.decisive,
        "weights": recipe.weights,
        "mixture": recipe.mixture.model_copy(update={"search": None}),
        "post_training": section,
    }


def contributions(store: Store, recipe: Recipe) -> list[mixture.Contribution]:
    """The contribution of each corpus to the run that the recipe describes. Raises as `settled`."""
    found = settled(store, recipe)
    return mixture.contributions(found.shards, recipe.weights, recipe.mixture, found.training)


def _data(store: Store, found: Settled) -> DataConfig:
    recipe, shards, training = found.recipe, found.shards, found.training
    tokens = {name: version.counts["train_tokens"] for name, version in sorted(shards.items())}
    tokens = {name: count for name, count in tokens.items() if count}
    if not tokens:
        raise PipelineError(
            "there are no tokens to train on: every document was rejected, a duplicate or held out. Add "
            "text, or loosen the quality rules"
        )
    if not any(shards[name].counts["validation_documents"] for name in tokens):
        raise PipelineError(
            "no document was held out for validation: raise shards.validation_fraction, add text, or cut "
            "long text files with `piece_bytes` of their source"
        )
    try:
        training.check_corpora(tokens)
    except ValueError as error:
        raise PipelineError(str(error)) from None
    shares = mixture.shares(tokens, recipe.weights, recipe.mixture, training.max_tokens, training.is_steady)
    mixture.rounded(shares)  # refuses a share that is too small
    tokenizer = store.current(keys.TOKENIZER)
    ends = TokenizerFiles.read(tokenizer.directory()).boundaries
    left = 1 - recipe.rehearsal
    corpora = [_corpus_shards(shards[name], name, share * left) for name, share in shares.items()]
    return DataConfig(
        tokenizer=tokenizer.path,
        tokenizer_sha256=tokenizer.parts[0].files[TOKENIZER].sha256,
        vocab_size=tokenizer.counts["entries"],
        bot_id=ends.begin,
        eot_id=ends.end,
        corpora=[*corpora, *_rehearsal(store, recipe)],
        chat=ChatIds.model_validate(ends.control) if training.objective != "pretrain" else None,
    )


def _rehearsal(store: Store, recipe: Recipe) -> Iterator[CorpusShards]:
    """The corpora of the pretraining that are read again, in proportion to their size. What is learned is
    measured on the held-out answers alone.
    """
    shards = {name: store.current(keys.base_shards(name)) for name in _rehearsed(recipe)}
    tokens = sum(version.counts["train_tokens"] for version in shards.values())
    for name, version in shards.items():
        if size := version.counts["train_tokens"]:
            found = _corpus_shards(version, f"{keys.REHEARSAL}{name}", recipe.rehearsal * size / tokens)
            yield found.model_copy(update={"validation": [], "validation_bytes": 0})


def _corpus_shards(version: Version, name: str, share: float) -> CorpusShards:
    return CorpusShards(
        name=name,
        weight=share,
        train=named(version, keys.TRAIN),
        validation=named(version, keys.VALIDATION),
        validation_bytes=version.counts["validation_text_bytes"],
        not_given_back=version.counts.get(LOST, 0) / version.counts.get(COMPARED, 1),
        content=version.data_version,
    )


def finish(store: Store, run: PlannedRun, checkpoint: Mapping[str, Any], seconds: float) -> Version:
    """Publishes the finished run. `checkpoint`: what the trainer reported of its last checkpoint. `seconds`:
    how long the trainer took in all its attempts.
    """
    with store.making(run.work) as draft:
        if isinstance(draft, Version):
            return draft
        return published(store, draft, checkpoint, run.config.run_dir, seconds)


def published(
    store: Store, draft: Draft, checkpoint: Mapping[str, Any], run_dir: Path, seconds: float
) -> Version:
    """Publishes a model, as `finish` does: `checkpoint` in the run in `run_dir`."""
    facts = {name: checkpoint[name] for name in RESULTS}
    places = {"checkpoint": Path(checkpoint["path"]), "run_dir": run_dir}
    relative = {name: str(place.relative_to(store.root)) for name, place in places.items()}
    draft.started -= seconds
    reused = RunHistory(run_dir).reused_tokens
    counts = {"steps": facts["step"], "tokens": facts["tokens"], REUSED: reused}
    files = {"result": draft.write("result.json", json.dumps(facts | relative, indent=1, sort_keys=True))}
    return draft.publish([Part("result", draft.work.fingerprint, files, counts)])


def check(store: Store, recipe: Recipe) -> None:
    """Checks, before training reads them, that the tokenizer and the shards hold what was written. Raises
    DamageError.
    """
    store.check(*_read(store, recipe))


@contextmanager
def at_hand(store: Store, recipe: Recipe, run: PlannedRun) -> Iterator[Callable[[], None]]:
    """While this lasts, all files that the trainer reads are on this machine, nobody removes the run, and
    what the trainer saves is brought to the store. Yields a function that raises ClaimLostError once another
    machine may train the run. Raises PipelineError.
    """
    reads = [file for version in _read(store, recipe) for file in version.opened()]
    directory = run.config.run_dir
    with store.files.uploading(directory, reads) as check_claim, locks.shared(directory / locks.WAITS):
        if store.files.shared and run.config.training.shared_states != "none":
            _fetch_shared_state(store, run)
        yield check_claim


def _fetch_shared_state(store: Store, run: PlannedRun) -> None:
    """Fetches the newest state of another run that this run can go on from. Of that state, only the small
    files were on this machine.
    """
    if any(history.path != run.config.run_dir and history.checkpoints() for history in run_histories(store)):
        found = run_trainer("states", str(run.config_path), threads=run.config.training.threads)
        for line in found.splitlines()[:1]:
            newest, own = json.loads(line), RunHistory(run.config.run_dir).checkpoints()
            if newest["step"] > max(own, default=0):
                store.files.fetch_folder(Path(newest["checkpoint"]))


def _read(store: Store, recipe: Recipe) -> list[Version]:
    shards = [*map(keys.token_shards, recipe.corpus_names), *map(keys.base_shards, _rehearsed(recipe))]
    return [store.current(key) for key in (keys.TOKENIZER, *shards)]


def finished(store: Store, work: Work) -> Version | None:
    """The version of a finished run if its final checkpoint still exists, which this run then uses."""
    version = store.existing(work)
    if version:
        store.use(version)
    return version if version and store.files.is_saved(result(store, version)["checkpoint"]) else None


def result(store: Store, model: Version) -> dict[str, Any]:
    """The result of a finished run, with `checkpoint` and `run_dir` as absolute paths."""
    facts = read_json(model.only("result"))
    store.files.pull_runs(store.root / facts["run_dir"])
    return facts | {name: store.root / facts[name] for name in ("checkpoint", "run_dir")}


def final_checkpoint(model: Version) -> str:
    """The name of the checkpoint that a finished run ended with."""
    return checkpoint_name(Path(read_json(model.only("result"))["checkpoint"]))


def fetch_held_out(store: Store, data: DataConfig) -> None:
    """Fetches the files that an evaluation reads beside the model."""
    prefixes = [prefix for corpus in data.corpora for prefix in corpus.validation]
    shards = [path(prefix) for prefix in prefixes for path in (bin_path, idx_path)]
    store.files.fetch_all([*shards, data.tokenizer / TOKENIZER, data.tokenizer / TOKENIZER_CONFIG])


def last_checkpoint(store: Store) -> Checkpoint:
    """The final checkpoint of the run that the recipe describes."""
    final = result(store, store.current(keys.PRETRAINED_MODEL))["checkpoint"]
    return checkpoint(store, checkpoint_name(final))
