"""Training runs side by side, as variants of a recipe or by their names: settings, scores, cost, curves."""

import hashlib
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from pipeline.recipe.overrides import leaves
from pipeline.recipe.recipe import Recipe
from pipeline.steps.model import evaluate
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.training import plan
from pipeline.steps.training.effort import Effort, spent
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.keys import RUNS
from pipeline.store.store import Store, StoreError
from pipeline.store.training_runs import checkpoint_name, run_histories, run_named
from pipeline.store.variant_names import BASE, families
from trainer.data.shards import Shard, ShardError, bin_path
from trainer.system.errors import TrainerError
from trainer.system.run_history import NAME_LENGTH, RunHistory, differing

log = logging.getLogger(__name__)

NAMES_SHOWN = 5  # of runs, in a message

# UTF-8 bytes, documents and a hash of the token ids; the last two are None where the shards are not on disk.
Facts = tuple[int, int | None, str | None]
Text = TypeVar("Text")


@dataclass(frozen=True)
class Curve:
    """The course of a training: at each logged step the tokens so far, the seconds in steps so far and the
    running mean of the loss, and at each validation the tokens and the loss.
    """

    tokens: list[int]
    seconds: list[float]
    losses: list[float]
    validated: list[int]
    validation_losses: list[float]


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    `settings` are those in which the runs differ, and `done` is the share of the training. The scores are
    those on all held-out text. During a training, and for a run that was named, they are those of its last
    validation, and None before it. `held_out` is a letter, the same for runs with the same held-out text and
    tokenizer. `benchmarks` has the scores of each benchmark. `seconds` are those of the trainer in all its
    attempts; for a run outside of a store, those in steps. `usd` is None where the recipe names no price.
    `recipe`, and `checkpoints`, the names of those on disk, are known of the runs of a store. `seeds` are the
    runs of a variant that has several: the outcome is then that of the first, with the effort of all. `rank`
    is that among the variants, None without enough seeds for a verdict. `run` is the name in the UI. `seed`
    is that of the training, once it has begun.
    """

    name: str
    settings: str
    done: float = 0.0
    tokens: int = 0
    loss: float | None = None
    bits_per_byte: float | None = None
    held_out: str = ""
    benchmarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seconds: float | None = None
    usd: float | None = None
    curve: Curve | None = None
    recipe: str = ""
    checkpoints: Sequence[str] | None = None
    seeds: Sequence["Outcome"] = ()
    rank: int | None = None
    run: str = ""
    seed: int | None = None


@dataclass(frozen=True)
class HeldOutText:
    """What a run is validated on: the facts of each corpus' text, of which at most `max_tokens` are read, and
    the hash of the tokenizer. Validation figures can be compared on the same text.
    """

    corpora: dict[str, Facts]
    tokenizer: str
    max_tokens: int | None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Reads the configuration of a run. Raises KeyError or TypeError if it is not one."""
        data = config["data"]
        corpora = {
            corpus["name"]: _facts(corpus["validation"], corpus["validation_bytes"])
            for corpus in data["corpora"]
            if corpus.get("validation")
        }
        return cls(corpora, data["tokenizer_sha256"], config["training"]["evaluation"].get("max_tokens"))

    def is_same(self, other: Self) -> bool:
        """Whether the text is the same. Under different tokenizers: as many bytes and documents."""
        if self.corpora.keys() != other.corpora.keys() or self.max_tokens != other.max_tokens:
            return False
        compared = 3 if self.tokenizer == other.tokenizer else 2
        return all(facts[:compared] == other.corpora[name][:compared] for name, facts in self.corpora.items())


def letters(texts: Sequence[Text], is_same: Callable[[Text, Text], bool]) -> list[str]:
    """A letter for each of the `texts`; the same text has the same letter."""
    firsts = [next(i for i, one in enumerate(texts) if is_same(one, text)) for text in texts]
    numbers = [sorted(set(firsts)).index(first) for first in firsts]
    return [chr(ord("A") + number) if number < 26 else str(number) for number in numbers]


def _facts(prefixes: Sequence[str], size: int) -> Facts:
    digest, documents = hashlib.sha256(), 0
    try:
        for prefix in map(Path, prefixes):
            documents += Shard(prefix).num_documents
            with bin_path(prefix).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except (OSError, ShardError):
        return size, None, None
    return size, documents, digest.hexdigest()


def of_runs(store: Store, names: Sequence[str]) -> list[Outcome]:
    """The runs with these names or paths, in this order. Raises PipelineError for those that are not runs."""
    histories = [run_named(store, name) for name in names]
    for name, history in zip(names, histories, strict=True):
        if not history.directory.config.is_file():
            known = ", ".join(run.name for run in readable(store)[:NAMES_SHOWN]) or "none"
            raise PipelineError(f"{name}: neither a variant nor a run. The newest runs of the store: {known}")
        if history.until_step and history.until_step > _last_step(history.path):
            raise PipelineError(f"{name}: the run has got to step {_last_step(history.path):,} only")
    try:
        settings = differences([run.settings for run in histories])
        texts = letters([HeldOutText.of(run.config) for run in histories], HeldOutText.is_same)
    except TrainerError as error:
        raise PipelineError(str(error)) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise PipelineError(f"cannot be read as the configuration of a run: {error}") from None
    if unstarted := [run.path for run in histories if not run.steps]:
        raise PipelineError(
            f"{unstarted[0]}: metrics.jsonl has no steps: not a run directory, or its run has not begun"
        )
    shown = [run.title for run in histories]
    if len(set(shown)) < len(shown):  # then their paths tell them apart
        shown = [str(run.path) for run in histories]
    return [
        _so_far(run, name=name, settings=own, text=text)
        for run, name, own, text in zip(histories, shown, settings, texts, strict=True)
    ]


def _last_step(path: Path) -> int:
    """The last step of a run that is logged or on disk."""
    run = RunHistory(path)
    return max([*(record["step"] for record in run.records), *run.checkpoints()], default=0)


def _so_far(run: RunHistory, *, name: str, settings: str, text: str) -> Outcome:
    """What came of a run up to its last step."""
    if not run.steps:
        return Outcome(name, settings, held_out=text, run=run.name)
    tokens, seconds, validations = run.tokens, run.seconds, run.validations
    last = (validations or [{}])[-1]
    curve = Curve(
        tokens,
        seconds,
        run.losses,
        [record["tokens"] for record in validations],
        [record["loss"] for record in validations],
    )
    return Outcome(
        name,
        settings,
        done=tokens[-1] / run.config["training"]["max_tokens"],
        tokens=tokens[-1],
        loss=last.get("loss"),
        bits_per_byte=last.get("bits_per_byte"),
        held_out=text,
        seconds=spent(run.path) or seconds[-1],
        curve=curve,
        run=run.name,
        seed=run.config["training"].get("seed"),
    )


def differences(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The settings of each run that are not the same in all runs, as text."""
    names = differing(settings)
    return [", ".join(f"{name} {one.get(name, 'not set')}" for name in names) for one in settings]


def training_runs(runs: Sequence[RunHistory]) -> list[Outcome]:
    """What came of the runs of a store, with the settings in which the runs of a recipe differ."""
    settings: dict[str, str] = {}
    for recipe in {run.recipe for run in runs}:
        alike = {run.name: run.settings for run in runs if run.recipe == recipe}
        settings |= zip(alike, differences([*alike.values()]), strict=True)
    return [
        replace(
            _so_far(run, name=run.title, settings=settings[run.name], text=""),
            recipe=run.recipe,
            checkpoints=list(map(checkpoint_name, run.checkpoints().values())),
        )
        for run in runs
    ]


def readable(store: Store) -> list[RunHistory]:
    """The runs in a store, newest first. Skips, with a warning, those that cannot be read."""
    found = [run for run in run_histories(store) if _is_readable(run)]
    return sorted(found, key=lambda run: -run.directory.config.stat().st_mtime_ns)


def _is_readable(run: RunHistory) -> bool:
    try:
        return bool(run.config)
    except TrainerError as error:
        log.warning("%s", error)
        return False


def leaderboard(
    store: Store, histories: Sequence[RunHistory], recipes: Mapping[str, Recipe], ranks: Mapping[str, int]
) -> list[Outcome]:
    """All runs of a store, of which these are the `histories`: first the variants of the recipe, by rank and
    their seeds together, then the others, the newest first; with scores on all held-out text if known.
    """
    scores = _evaluations(store)
    runs = {one.run: _with_scores(scores.get(one.run), one) for one in training_runs(histories)}
    if len(recipes) == 1:
        return [*runs.values()]
    variants = sorted(outcomes(recipes, ranks), key=lambda one: one.rank or len(recipes))
    own = {seed.run for variant in variants for seed in (variant, *variant.seeds)}
    shown = [
        replace(variant, checkpoints=runs[variant.run].checkpoints, recipe=runs[variant.run].recipe)
        if variant.run in runs
        else variant
        for variant in variants
    ]
    return [*shown, *(one for name, one in runs.items() if name not in own)]


def _with_scores(scores: Mapping[str, Any] | None, outcome: Outcome) -> Outcome:
    if scores is None:
        return outcome
    loss, bits, answered = scores.get("loss"), scores.get("bits_per_byte"), scores.get("benchmarks") or {}
    return replace(outcome, loss=loss, bits_per_byte=bits, benchmarks=answered)


def _evaluations(store: Store) -> dict[str, dict[str, Any]]:
    """The scores of finished runs on all held-out text, by the names of the runs."""
    models = {one.data_version: one.fingerprint for one in store.newest_first(keys.PRETRAINED_MODEL)}
    found: dict[str, dict[str, Any]] = {}
    for version in store.newest_first(keys.EVALUATION):
        run = models.get(version.manifest["inputs"][keys.PRETRAINED_MODEL], "")[:NAME_LENGTH]
        found.setdefault(run, evaluate.read(version))
    return found


def outcomes(recipes: Mapping[str, Recipe], ranks: Mapping[str, int]) -> list[Outcome]:
    """One for each variant, with all of its seeds and its rank, if any, in the order of the recipes."""
    found = [_outcome(name, recipe, recipes[BASE]) for name, recipe in recipes.items()]
    texts = [one.held_out for one in found if one.held_out]
    named = {"": "", **dict(zip(texts, letters(texts, operator.eq), strict=True))}
    runs = {one.name: replace(one, held_out=named[one.held_out]) for one in found}
    return [
        replace(_seeds_together([runs[seed] for seed in seeds]), rank=ranks.get(name))
        for name, seeds in families(recipes).items()
    ]


def _seeds_together(runs: Sequence[Outcome]) -> Outcome:
    if len(runs) == 1:
        return runs[0]
    costs = [run.usd for run in runs if run.usd is not None]
    return replace(
        runs[0],
        done=sum(run.done for run in runs) / len(runs),
        seconds=sum(run.seconds or 0 for run in runs),
        usd=sum(costs) if costs else None,
        seeds=runs,
    )


def _outcome(name: str, recipe: Recipe, written: Recipe) -> Outcome:
    """The outcome of a variant, with hashes of the held-out tokens that later become a letter."""
    given = leaves(written.pretraining.all_variants.get(name, {}))
    settings = ", ".join(f"{setting} {value}" for setting, value in given)
    store = store_of(recipe)
    try:
        work, text = plan.PretrainedModel(recipe).work(store), _held_out(store, recipe)
        trained = plan.training_work(store, plan.settled(store, recipe))
    except StoreError:  # of shards that have not been made
        return Outcome(name, settings)
    except PipelineError as error:  # of initial weights that are gone
        log.warning("the run of %s cannot be looked for: %s", name, error)
        return Outcome(name, settings)
    model = store.existing(work)
    run = RunHistory(store.root / RUNS / (work if model else trained).name)
    so_far = _so_far(run, name=name, settings=settings, text=text)
    if model is None:
        return so_far
    effort = Effort.of(model, recipe.launch.usd_per_hour)
    evaluation = store.current_or_none(keys.EVALUATION)  # the run may have been stopped before it
    scores = evaluate.read(evaluation) if evaluation else plan.result(store, model)
    ended = replace(so_far, done=1.0, tokens=effort.tokens, seconds=effort.seconds, usd=effort.usd)
    return _with_scores(scores, ended)


def _held_out(store: Store, recipe: Recipe) -> str:
    """What tells the held-out tokens apart: their hashes."""
    versions = [store.current(keys.token_shards(name)) for name in recipe.corpus_names]
    return " ".join(
        file.sha256
        for version in versions
        for part in version.parts
        for table, file in sorted(part.files.items())
        if table.startswith(keys.VALIDATION)
    )
