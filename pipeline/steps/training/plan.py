"""Token shards -> a training run: its configuration, where it lives, and what it is made from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.recipe.recipe import Recipe
from pipeline.steps.lineage import record
from pipeline.steps.tokens.shards import prefixes
from pipeline.steps.tokens.tokenizer import frozen
from pipeline.steps.training import initial_weights, mixture
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.training_runs import RUNS
from pipeline.store.versions import File, Part, Store, Version, Work
from trainer.config import OPERATIONAL, CorpusShards, DataConfig, RunConfig
from trainer.system.durable import write_atomically

VERSION = "train-2"


class TrainingError(PipelineError):
    """Training cannot start or did not end well."""


@dataclass(frozen=True)
class Run:
    """A training run: the same work has the same directory, so an interrupted run is found again and goes on.

    Settings that do not decide what is learnt (how often to save, what to sample) can change in between.
    """

    work: Work
    config: RunConfig

    @property
    def name(self) -> str:
        return self.work.fingerprint[:8]

    @property
    def config_path(self) -> Path:
        return self.config.run_dir / "config.yaml"

    def write_config(self) -> Path:
        """Writes what `python -m trainer` reads."""
        write_atomically(
            self.config_path, yaml.safe_dump(self.config.model_dump(mode="json"), sort_keys=False)
        )
        return self.config_path


def plan(store: Store, recipe: Recipe) -> Run:
    """The run that the recipe describes on the shards as they are now. Raises TrainingError when there is
    nothing to train or validate on.
    """
    tokenizer = store.current(keys.TOKENIZER)
    shards = {name: store.current(keys.token_shards(name)) for name in recipe.corpus_names}
    inputs = {version.key: version.data_version for version in (tokenizer, *shards.values())}
    training = initial_weights.located(recipe)
    decisive = {
        **training.model_dump(mode="json", exclude=OPERATIONAL),
        "pretrained": initial_weights.identity(store, training),
    }
    work = Work(
        keys.PRETRAINED_MODEL,
        VERSION,
        {"training": decisive, "weights": recipe.weights, "mixture": recipe.mixture},
        inputs,
    )
    run_dir = store.root / RUNS / work.fingerprint[:16]
    config = RunConfig(
        run_dir=run_dir,
        data=_data(tokenizer, shards, recipe),
        training=training,
        lineage=record.of_recipe(store, recipe),
    )
    return Run(work, config)


def contributions(store: Store, recipe: Recipe) -> list[mixture.Contribution]:
    """What each corpus contributes to the run that the recipe describes. Raises StoreError when it has no
    shards yet, MixtureError.
    """
    shards = {name: store.current(keys.token_shards(name)) for name in recipe.corpus_names}
    return mixture.contributions(shards, recipe.weights, recipe.mixture, recipe.training)


def _data(tokenizer: Version, shards: Mapping[str, Version], recipe: Recipe) -> DataConfig:
    with_tokens = {
        name: version for name, version in sorted(shards.items()) if version.counts["train_tokens"]
    }
    if not with_tokens:
        raise TrainingError(
            "no token is left to train on: every document was rejected, a duplicate or held out"
        )
    if not any(version.counts["validation_documents"] for version in with_tokens.values()):
        raise TrainingError(
            "no document was held out for validation: raise shards.validation_fraction, or add text"
        )
    try:
        recipe.training.check_corpora(with_tokens)
    except ValueError as error:
        raise TrainingError(str(error)) from None
    tokens = {name: version.counts["train_tokens"] for name, version in with_tokens.items()}
    shares = mixture.shares(tokens, recipe.weights, recipe.mixture, recipe.training.max_tokens)
    ends = frozen(tokenizer.path).boundaries
    return DataConfig(
        tokenizer=tokenizer.path,
        tokenizer_sha256=tokenizer.parts[0].files["tokenizer.json"].sha256,
        vocab_size=tokenizer.counts["entries"],
        bot_id=ends.begin,
        eot_id=ends.end,
        corpora=[_corpus_shards(version, name, shares[name]) for name, version in with_tokens.items()],
    )


def _corpus_shards(version: Version, name: str, share: float) -> CorpusShards:
    counts = version.counts
    return CorpusShards(
        name=name,
        weight=share,
        train=prefixes(version, "train"),
        validation=prefixes(version, "validation"),
        validation_bytes=counts["validation_text_bytes"],
        content=version.data_version,
    )


def finish(store: Store, run: Run, checkpoint: Mapping[str, Any], seconds: float) -> Version:
    """Publishes the finished run. `checkpoint` is what the trainer said of its last one; `result.json` names
    it, relative to the store.

    `seconds`: how long the trainer took, an attempt that was interrupted before not counted.
    """
    facts = {
        name: checkpoint[name]
        for name in ("step", "tokens", "loss", "validation_loss", "bits_per_byte", "data_version")
    }
    places = {"checkpoint": Path(checkpoint["path"]), "run_dir": run.config.run_dir}
    with store.making(run.work) as draft:
        if isinstance(draft, Version):
            return draft
        draft.started -= seconds
        path = draft.path / "result.json"
        relative = {name: str(place.relative_to(store.root)) for name, place in places.items()}
        write_atomically(path, json.dumps(facts | relative, indent=1, sort_keys=True))
        counts = {"steps": facts["step"], "tokens": facts["tokens"]}
        return draft.publish(
            [Part("result", run.work.fingerprint, {"result": File.of(path, draft.path)}, counts)]
        )


def finished(store: Store, run: Run) -> Version | None:
    """The version of a run that is done and whose final checkpoint is still there; it becomes the one in
    use.
    """
    version = store.reuse(run.work)
    return version if version and result(store, version)["checkpoint"].exists() else None


def result(store: Store, model: Version) -> dict[str, Any]:
    """What a finished run ended in; `checkpoint` and `run_dir` as absolute paths."""
    facts = json.loads((model.path / "result.json").read_text(encoding="utf-8"))
    return facts | {name: store.root / facts[name] for name in ("checkpoint", "run_dir")}
