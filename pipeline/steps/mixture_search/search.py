"""Token shards -> mixture_search: small trainings over random mixtures, and the mixture that they propose."""

import json
import logging
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np
from pydantic import ValidationError

from pipeline.recipe.overrides import leaves, merged
from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.recipe.sections import SearchParams
from pipeline.steps.mixture_search import law
from pipeline.steps.stage import RecipeStage
from pipeline.steps.tokens import bigram
from pipeline.steps.training import mixture, plan
from pipeline.steps.training.launcher import run_trainer
from pipeline.store import keys
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.config import RunConfig, TrainingConfig, format_validation_error
from trainer.system.durable import read_json, write_atomically
from trainer.system.run_history import RunHistory

VERSION = "mixture-search-3"
REPEATS = 2  # further seeds of the run with the proportions, to know how far seeds alone differ
BOOTSTRAPS = 100
PROPORTIONS = "weights"  # what the shares of the recipe follow from
# Settings of `training` that are tokens of the run, so that a shorter run has less of them.
IN_TOKENS_OF_THE_RUN = {"schedule": "warmup_tokens", "averaging": "half_life_tokens"}

log = logging.getLogger(__name__)


def search(store: Store, recipe: Recipe) -> Version:
    """Trains the small runs of the recipe's search, as many at once as have their own cores, and keeps shares
    and losses of each. A killed search goes on with the runs that were not done. Raises RecipeError without
    `mixture.search`, and PipelineError.
    """
    work = MixtureSearch(recipe).work(store)
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        config = plan.plan(store, small(recipe)).config
        planned = []
        drawn, seed = mixtures(store, recipe), config.training.seed
        repeated = [(drawn[0], seed + number) for number in range(1, REPEATS + 1)]
        for number, (shares, own_seed) in enumerate([*((one, seed) for one in drawn), *repeated]):
            corpora = [one.model_copy(update={"weight": shares[one.name]}) for one in config.data.corpora]
            data = config.data.model_copy(update={"corpora": corpora})
            own = {"run_dir": draft.path / "runs" / f"{number:03d}", "lineage": {}, "data": data}
            planned.append(config.model_copy(update=own).with_training(seed=own_seed))
        cores = len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(max(1, cores // (config.training.threads or cores))) as pool:
            found = list(pool.map(_train, planned))
        files = {"runs": draft.write("runs.json", json.dumps(found, indent=1))}
        shutil.rmtree(draft.path / "runs")
        return draft.publish([Part("search", work.fingerprint, files, {"runs": len(found)})])


class MixtureSearch(RecipeStage):
    """The small runs that weights are chosen by."""

    name = keys.MIXTURE_SEARCH

    @property
    def deciding(self) -> Any:
        """Nothing: no variant has a search of its own."""
        return None

    @property
    def inputs(self) -> Sequence[Key]:
        return [keys.TOKENIZER, *map(keys.token_shards, self.recipe.corpus_names)]

    def work(self, store: Store) -> Work:
        """Raises RecipeError when the recipe has no search, or for invalid settings of it."""
        trained = small(self.recipe)
        params = {
            "runs": settings(self.recipe).runs,
            "training": trained.training.decisive,
            PROPORTIONS: self.recipe.weights,
            "mixture": trained.mixture,
        }
        return Work(self.key, VERSION, params, store.data_versions(self.inputs))


def settings(recipe: Recipe) -> SearchParams:
    """`mixture.search`. Raises RecipeError when the recipe has none."""
    if recipe.mixture.search is None:
        raise RecipeError(f"the recipe {recipe.name!r} has no `mixture: {{search: ...}}`: docs/variants.md")
    return recipe.mixture.search


def small(recipe: Recipe) -> Recipe:
    """The recipe of a small run: `search.training` over the recipe's, one validation and one checkpoint at
    the end, no samples, no stages. A length that the recipe gives in tokens is as large a share of the run.
    """
    written = recipe.training.model_dump(mode="json", exclude={"stages", "sinks"}, exclude_unset=True)
    training = merged(written, settings(recipe).training)
    end = training["max_tokens"]
    training |= {"samples": {"prompts": []}}
    training["checkpoint"] |= {"every_tokens": end, "keep_last": 1, "keep_every_tokens": None}
    training["evaluation"] |= {"every_tokens": end}
    half_life = (training.get("averaging") or {}).get("half_life_tokens")
    training["averaging"] = half_life and {"half_life_tokens": half_life}  # without the mean of checkpoints
    try:
        timeless = {name: value for name, value in training.items() if name not in IN_TOKENS_OF_THE_RUN}
        share = TrainingConfig.model_validate(timeless).max_tokens / recipe.training.max_tokens
        checked = TrainingConfig.model_validate(training | _shortened(training, settings(recipe), share))
    except ValidationError as error:
        raise RecipeError(f"mixture.search.training: {format_validation_error(error)}") from None
    plain = recipe.mixture.model_copy(update={"search": None})
    return recipe.model_copy(update={"training": checked, "mixture": plain})


def _shortened(training: Mapping[str, Any], search: SearchParams, share: float) -> dict[str, Any]:
    """Lengths in tokens of the run, for one that is `share` as long. What the search sets itself stays."""
    own, found = dict(leaves(search.training)), {}
    for section, name in IN_TOKENS_OF_THE_RUN.items():
        length = (training.get(section) or {}).get(name)
        if length and f"{section}.{name}" not in own:
            found[section] = training[section] | {name: max(1, round(length * share))}
    return found


def mixtures(store: Store, recipe: Recipe) -> list[dict[str, float]]:
    """The shares of each run; no corpus is read more often than `max_epochs`. Raises PipelineError."""
    tokens, trained = _tokens(store, recipe), small(recipe)
    drawn = law.mixtures(_proportions(recipe, tokens), settings(recipe).runs, recipe.training.seed)
    weights = [dict(zip(tokens, row.tolist(), strict=True)) for row in drawn]
    return [mixture.shares(tokens, row, trained.mixture, trained.training.max_tokens) for row in weights]


def _tokens(store: Store, recipe: Recipe) -> dict[str, int]:
    found = {
        name: store.current(keys.token_shards(name)).counts["train_tokens"] for name in recipe.corpus_names
    }
    return {name: tokens for name, tokens in found.items() if tokens}


def _proportions(recipe: Recipe, tokens: Mapping[str, int]) -> law.Array:
    unlimited = recipe.mixture.model_copy(update={"max_epochs": None, "search": None})
    shares = mixture.shares(tokens, recipe.weights, unlimited, 1)
    return np.array([shares[name] for name in tokens])


def _train(config: RunConfig) -> dict[str, Any]:
    """Shares and losses of one run, which is trained unless its result is there."""
    directory = config.run_dir
    result = directory / "result.json"
    if not result.exists():
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "config.yaml"
        write_atomically(path, config.as_yaml)
        run_trainer(str(path), threads=config.training.threads)
        last = RunHistory(directory).validations[-1]
        losses = {name: scores["loss"] for name, scores in last["per_corpus"].items()}
        shares = {one.name: one.weight for one in config.data.corpora}
        write_atomically(result, json.dumps({"shares": shares, "losses": losses}))
        shutil.rmtree(directory / "checkpoints")
        log.info("run %s: %s", directory.name, ", ".join(f"{name} {losses[name]:.4f}" for name in losses))
    return read_json(result)


def result(store: Store, recipe: Recipe, version: Version) -> dict[str, Any]:
    """The fitted law and its proposal, computed once: fields of both. Raises PipelineError."""
    tokens, target = _tokens(store, recipe), settings(recipe).target
    planned = recipe.training.max_tokens
    limit = recipe.mixture.max_epochs
    most = [1.0 if limit is None else limit * size / planned for size in tokens.values()]

    def make() -> dict[str, Any]:
        runs = read_json(version.only("runs"))
        shares = np.array([[run["shares"][name] for name in tokens] for run in runs[:-REPEATS]])
        losses = np.array([aimed_at(run["losses"], target) for run in runs])
        bigrams = {name: _bigram(store, name) for name in runs[0]["losses"]}
        law.check(losses[:-REPEATS], losses[[0, *range(-REPEATS, 0)]], aimed_at(bigrams, target))
        losses = losses[:-REPEATS]
        seed, tried = recipe.training.seed, shares.max(0)  # beyond which a law would only guess
        fitted = law.fitted(shares, losses, BOOTSTRAPS, seed)
        chosen = law.proposed(
            fitted, list(tokens), _proportions(recipe, tokens), np.minimum(most, tried), seed
        )
        return {
            "law": fitted.name,
            "errors": fitted.errors,
            "rank": fitted.rank,
            "proportions": dict(zip(tokens, _proportions(recipe, tokens).round(4).tolist(), strict=True)),
            **asdict(chosen),
        }

    return version.report("proposal", [law.VERSION, target, most], make)


def _bigram(store: Store, name: str) -> float:
    """The held-out loss of a corpus' bigrams, nats per token."""
    entries = store.current(keys.TOKENIZER).counts["entries"]
    found = bigram.of_shards(store.current(keys.token_shards(name)), entries)
    return found["loss"] if found else math.inf


def aimed_at(losses: Mapping[str, float], target: Mapping[str, float] | None) -> float:
    """The mean of the held-out losses of corpora, weighed by `target`; all alike without one."""
    weights = target or dict.fromkeys(losses, 1.0)
    return sum(weight * losses[name] for name, weight in weights.items()) / sum(weights.values())
