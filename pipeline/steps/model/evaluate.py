"""A finished run -> evaluation: bits per byte on all held-out text, those of compressors, and samples."""

import bz2
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pipeline.recipe.evaluation import EvaluationParams
from pipeline.recipe.post_training import ANSWER_TOKENS
from pipeline.recipe.recipe import Recipe
from pipeline.steps.lineage.lineage_versions import version_of
from pipeline.steps.model import benchmark, harness, tuned_model
from pipeline.steps.stage import RecipeStage
from pipeline.steps.tokens import bigram
from pipeline.steps.training import plan
from pipeline.steps.training.launcher import one_trainer, run_trainer
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.store import Store
from pipeline.store.training_runs import checkpoint_name, checkpoint_path
from pipeline.store.work import Work
from trainer.config import RunConfig, run_config_of
from trainer.config.model_files import TOKENIZER
from trainer.data.shards import Shard
from trainer.system.durable import read_json
from trainer.system.run_history import checkpoint_sha256

VERSION = "evaluate-2"
BIGRAM = "bigram model"  # among the compressors: a model that does not beat it learned next to nothing


def evaluate(store: Store, recipe: Recipe) -> Version:
    """Evaluates the final checkpoint of the recipe's training, also on benchmarks and evaluation texts, and
    of a tuned model its answers: `evaluation.json`.
    """
    with store.making(Evaluation(recipe).work(store)) as draft:
        if isinstance(draft, Version):
            return draft
        result = plan.result(store, store.current(keys.PRETRAINED_MODEL))
        name = checkpoint_name(result["checkpoint"])
        with one_trainer():
            facts = _measured(store, recipe, result)
        return _published(store, name, draft, facts, {"held_out_bytes": facts["held_out_bytes"]})


def _measured(store: Store, recipe: Recipe, result: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an evaluation. `result` is that of the training, as `plan.result` returns it."""
    samples = f"--samples={recipe.training.samples.model_dump_json()}"
    facts = _evaluated(store, result["checkpoint"], samples)
    run = run_config_of(result["checkpoint"])
    if run.training.objective == "pretrain":
        size, compressors = compressed_bits_per_byte(held_out_text(run))
        if (loss := _bigram_loss(store, result["checkpoint"])) is not None:
            compressors[BIGRAM] = loss / facts["loss"] * facts["bits_per_byte"]
    else:
        size, compressors = facts["validation_bytes"], {}
        models = _models(store, recipe, result["checkpoint"])
        facts["tuning"] = tuned_model.compared(store, recipe, run, models, facts)
        asked_both_ways = _asked_both_ways(recipe.evaluation, models, run.training.precision)
        facts["tuning"]["benchmarks"] = asked_both_ways
    facts |= {"held_out_bytes": size, "compressors": compressors}
    if asked := benchmark.of_recipe(store, recipe.evaluation):
        answered = benchmark.benchmark_checkpoint(store, checkpoint_name(result["checkpoint"]), asked)
        facts["benchmarks"] = benchmark.read(answered)
    return facts


def _bigram_loss(store: Store, checkpoint: Path) -> float | None:
    """Nats per held-out token of the corpora that a checkpoint was trained on, by pairs of their tokens."""
    assets = read_json(checkpoint / "lineage.json")["assets"]
    corpora = [key for key in map(Key.from_path, assets) if key.stage == keys.TOKEN_SHARDS]
    entries = assets[keys.TOKENIZER]["counts"]["entries"]
    return bigram.of_corpora([version_of(store, assets, key) for key in corpora], entries)


def _models(store: Store, recipe: Recipe, tuned: Path) -> dict[str, Path]:
    """The checkpoints that are compared: `before`, where it is in this store, and `after` tuning."""
    base = recipe.base and plan.result(store, store.current(keys.BASE_MODEL))["checkpoint"]
    return ({tuned_model.BEFORE: store.files.fetch_folder(base)} if base else {}) | {tuned_model.AFTER: tuned}


def _asked_both_ways(
    evaluation: EvaluationParams, models: Mapping[str, Path], precision: str
) -> dict[str, dict[str, Any]]:
    """Scores by benchmark: of each model as any other is asked, and after tuning through the template."""
    asked = benchmark.named(evaluation.benchmarks)
    if not asked:
        return {}
    found = {name: benchmark.answered(model, asked, precision) for name, model in models.items()}
    found["through the template"] = benchmark.answered(models[tuned_model.AFTER], asked, precision, "--chat")
    return found


class Evaluation(RecipeStage):
    """What the final checkpoint of a training is measured by."""

    name = keys.EVALUATION

    @property
    def deciding(self) -> Any:
        return self.recipe.training.samples, self.recipe.evaluation, tuned_model.longest(self.recipe)

    @property
    def inputs(self) -> Sequence[Key]:
        texts = (keys.evaluation_text(text.name) for text in self.recipe.evaluation.texts)
        return [keys.PRETRAINED_MODEL, *texts]

    def work(self, store: Store) -> Work:
        settings: dict[str, Any] = {"samples": self.recipe.training.samples}
        evaluation = self.recipe.evaluation
        if self.recipe.training.objective != "pretrain":
            settings["answers"] = tuned_model.VERSION
            if (limit := tuned_model.longest(self.recipe)) != ANSWER_TOKENS:
                settings["answer_tokens"] = limit
        if evaluation.titles:
            settings["benchmarks"] = [benchmark.VERSION, [one.read().sha256 for one in evaluation.benchmarks]]
        settings |= harness.imported(store, plan.final_checkpoint(store.current(keys.PRETRAINED_MODEL)))
        return Work(self.key, VERSION, settings, store.data_versions(self.inputs))


def evaluate_checkpoint(store: Store, name: str) -> Version:
    """Evaluates a checkpoint on held-out text. Raises CheckpointGoneError and PipelineError."""
    checkpoint = checkpoint_path(store, name)
    weights = {"checkpoint": checkpoint_sha256(checkpoint)}
    settings = harness.imported(store, name)
    with store.making(Work(keys.checkpoint_evaluation(name), VERSION, settings, weights)) as draft:
        if isinstance(draft, Version):
            return draft
        facts = _evaluated(store, checkpoint)
        return _published(store, name, draft, facts, {"validation_tokens": facts["validation_tokens"]})


def with_imported(store: Store, name: str, version: Version) -> Version:
    """The evaluation of a checkpoint with all scores that were imported since. Nothing is computed again."""
    made = version.manifest
    settings = made["params"] | harness.imported(store, name)
    with store.making(Work(version.key, made["code_version"], settings, made["inputs"])) as draft:
        if isinstance(draft, Version):
            return draft
        return _published(store, name, draft, read(version), version.counts)


def _evaluated(store: Store, checkpoint: Path, *options: str) -> dict[str, Any]:
    store.files.fetch_folder(checkpoint)
    plan.fetch_held_out(store, run_config_of(checkpoint).data)
    return json.loads(run_trainer("evaluate", f"--model={checkpoint}", *options))


def _published(
    store: Store, checkpoint: str, draft: Draft, facts: dict[str, Any], counts: dict[str, int]
) -> Version:
    if imported := harness.scores(store, checkpoint):
        facts["benchmarks"] = facts.get("benchmarks", {}) | imported
    content = json.dumps(facts, indent=1, ensure_ascii=False)
    files = {"evaluation": draft.write("evaluation.json", content)}
    return draft.publish([Part(keys.EVALUATION, draft.work.fingerprint, files, counts)])


def read(version: Version) -> dict[str, Any]:
    """The content of an evaluation."""
    return read_json(version.only("evaluation"))


def held_out_text(config: RunConfig) -> Iterator[bytes]:
    """The decoded validation documents of a run, shard by shard. Byte-level BPE gives back every byte."""
    tokenizer = Tokenizer.from_file(str(config.data.tokenizer / TOKENIZER))
    for prefix in (prefix for corpus in config.data.corpora for prefix in corpus.validation):
        shard = Shard(prefix)
        documents = [shard.document(i)[1:-1].tolist() for i in range(shard.num_documents)]
        yield "".join(tokenizer.decode_batch(documents, skip_special_tokens=False)).encode()


def compressed_bits_per_byte(text: Iterable[bytes]) -> tuple[int, dict[str, float]]:
    """The bytes of `text`, and the bits per byte of compressors: a model that needs more learned little."""
    size = 0
    compressors: dict[str, lzma.LZMACompressor | bz2.BZ2Compressor] = {
        "xz -9": lzma.LZMACompressor(preset=9),
        "bzip2 -9": bz2.BZ2Compressor(9),
    }
    compressed = dict.fromkeys(compressors, 0)
    for piece in text:
        size += len(piece)
        for name, compressor in compressors.items():
            compressed[name] += len(compressor.compress(piece))
    ends = {name: len(compressor.flush()) for name, compressor in compressors.items()}
    return size, {name: 8 * (compressed[name] + end) / size for name, end in ends.items()}
