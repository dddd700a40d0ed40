"""Checks before the first step, so that a run that cannot work fails at once and changes nothing."""

import hashlib
import logging
import shutil
import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from trainer.checkpoint import publish
from trainer.config import ChatIds, CorpusShards, DataConfig, RunConfig, TrainingConfig
from trainer.config.model_files import TOKENIZER
from trainer.data.held_out import held_out
from trainer.data.shards import Shard, ShardError, idx_path
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.llama import padded_vocab_size
from trainer.parallel.world import World
from trainer.run.fit import compiler
from trainer.run.fit.hardware import free_memory
from trainer.run.fit.memory import Footprint, copies_with_averages, is_ample
from trainer.system.errors import TrainerError
from trainer.system.launch import missing_trackers
from trainer.system.wording import counted

BLOCK_TOKENS = 1 << 20
# Shards whose content is known are sampled: this many of them, this many tokens each.
SAMPLED_SHARDS, SAMPLED_TOKENS = 64, 1 << 16
SLOW_SECONDS = 10.0
SEARCHED_TOKENS = 1 << 20  # of a shard, for an answer
KINDS = {1: "single conversations", 2: "pairs of a chosen and a rejected conversation"}
# Forward pass only, a third of the operations of a training step.
FORWARD_SHARE, LONG_VALIDATION_SHARE = 1 / 3, 0.2

log = logging.getLogger("trainer")


def check(config: RunConfig, world: World) -> dict[str, str]:
    """Returns the content hash of each corpus' shards (train and validation) by corpus name. Raises
    TrainerError for what cannot work.

    For the main process alone. Reads every token of a corpus without `content`. Of the others it checks the
    sizes of all shards and some of their ids; an invalid id found later ends the run with the name of its
    document (TrainingData.batch).
    """
    for problem in missing_trackers(config.training.sinks):
        raise TrainerError(problem)
    compiler.check(config.training, world.device)
    check_batch(config.training, config.training.micro_batch_windows, world.data_size)
    _check_tokenizer(config)
    found = {corpus.name: _check_shards(corpus, config.data) for corpus in config.data.corpora}
    _check_conversations(config)
    _check_disk(config)
    _check_memory(config, world)
    _warn_of_long_validations(config)
    return found


def check_batch(training: TrainingConfig, windows: int, data_size: int) -> None:
    """Raises TrainerError unless micro-batches of so many `windows` fill each stage's global batch, in as
    many as a pipeline needs.
    """
    pp = training.parallel.pp
    for stage in training.curriculum.stages:
        where = f"stage {stage.name!r}: " if training.stages else ""
        number, rest = divmod(stage.global_batch_tokens, windows * training.seq_len * data_size)
        if rest:
            raise TrainerError(
                f"{where}training.global_batch_tokens {stage.global_batch_tokens} is not a multiple of "
                f"seq_len x micro_batch_size x processes ({training.seq_len} x {windows} x {data_size}). "
                "Change one of them"
            )
        if number < pp:
            raise TrainerError(
                f"{where}training.parallel.pp {pp} needs at least {pp} micro-batches per step in each "
                f"pipeline, but there are {number}. Lower training.micro_batch_size, or raise "
                "training.global_batch_tokens"
            )


def _check_tokenizer(config: RunConfig) -> None:
    path = config.data.tokenizer / TOKENIZER
    if not path.is_file():
        raise TrainerError(f"{path}: no such file. Set data.tokenizer to a directory with tokenizer.json")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != config.data.tokenizer_sha256:
        raise TrainerError(
            f"{path} has sha256 {found}, but the token shards were made with {config.data.tokenizer_sha256}. "
            "Tokenize again, or set data.tokenizer to the tokenizer that made them"
        )
    tokenizer, context = load_tokenizer(config.data.tokenizer), config.training.seq_len
    _check_data(config.data, tokenizer)
    for number, prompt in enumerate(config.training.samples.prompts):
        tokens = len(tokenizer.encode(prompt, add_special_tokens=False).ids) + 1  # [BOT]
        if tokens >= context:
            raise TrainerError(
                f"training.samples.prompts.{number} has {tokens} tokens, which leaves no room to "
                f"continue it within training.seq_len {context}. Shorten it"
            )


def _check_data(data: DataConfig, tokenizer: Tokenizer) -> None:
    """Raises TrainerError if the vocabulary is not the tokenizer's, or text that is trained on validates."""
    size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if data.vocab_size != size:
        raise TrainerError(
            f"data.vocab_size is {data.vocab_size}, but the tokenizer in {data.tokenizer} has {size} "
            f"entries: set it to {size}"
        )
    trained = {prefix.resolve(): corpus.name for corpus in data.corpora for prefix in corpus.train}
    for corpus in data.corpora:
        for prefix in corpus.validation:
            if learner := trained.get(prefix.resolve()):
                other = f" of corpus {learner!r}" if learner != corpus.name else ""
                raise TrainerError(
                    f"corpus {corpus.name!r}: {prefix} is in `validation` and in `train`{other}: its loss "
                    "says nothing about unseen text. Remove it from one of them"
                )


def _check_shards(corpus: CorpusShards, data: DataConfig) -> str:
    try:
        shards = [Shard(prefix) for prefix in (*corpus.train, *corpus.validation)]
        if corpus.validation and sum(shard.num_tokens for shard in shards[len(corpus.train) :]) < 2:
            raise TrainerError(
                f"corpus {corpus.name!r}: its validation shards hold no text to predict. Remove `validation` "
                "and `validation_bytes`, or name shards with text"
            )
        if corpus.content is None:
            return _hash_shards(corpus.name, shards, data)
        for shard in shards[:: -(-len(shards) // SAMPLED_SHARDS)]:
            if shard.num_tokens and int(shard.tokens[:SAMPLED_TOKENS].max()) >= data.vocab_size:
                shard.check_ids(data.vocab_size)
    except ShardError as error:
        raise TrainerError(f"corpus {corpus.name!r}: {error}") from error
    return corpus.content


def _hash_shards(name: str, shards: list[Shard], data: DataConfig) -> str:
    started = time.monotonic()
    digest = hashlib.sha256()
    for shard in shards:
        digest.update(idx_path(shard.prefix).read_bytes())
        for start in range(0, shard.num_tokens, BLOCK_TOKENS):
            block = shard.tokens[start : start + BLOCK_TOKENS]
            if int(block.max()) >= data.vocab_size:
                shard.check_ids(data.vocab_size)
            digest.update(block.data)
        shard.check_index()
        shard.check_ends(data.bot_id, data.eot_id)
    seconds, found = time.monotonic() - started, digest.hexdigest()
    if seconds > SLOW_SECONDS:
        log.info(
            f"corpus {name!r}: all tokens read and hashed in {seconds:.0f} s. Set `content: {found}` in its "
            "configuration to skip this next time"
        )
    return found


def _check_conversations(config: RunConfig) -> None:
    """Raises TrainerError for shards that the objective cannot learn from, by the beginning of each and the
    lengths of all.
    """
    objective, chat, data = config.training.objective, config.data.chat, config.data
    if objective == "pretrain" or chat is None:
        return
    answered = set()
    for corpus in data.corpora:
        for prefix in (*corpus.train, *corpus.validation):
            shard, told = Shard(prefix), f"corpus {corpus.name!r}: {prefix}"
            if not shard.num_documents:
                continue
            first = shard.document(0)
            found, wanted = int((first == data.bot_id).sum()), 2 if objective == "dpo" else 1
            if found != wanted:
                raise TrainerError(
                    f"{told} holds {KINDS.get(found, 'other documents')}, and training.objective {objective} "
                    f"learns from {KINDS[wanted]}: leave the corpus out, or change the objective"
                )
            _check_lengths(told, shard, config.training.seq_len, chat)
            if (shard.tokens[:SEARCHED_TOKENS] == chat.assistant).any():
                answered.add("train" if prefix in corpus.train else "validation")
    for split, what in (("train", "answers to learn"), ("validation", "held-out answers")):
        if split not in answered:
            raise TrainerError(
                f"no corpus has {what} in its {split} shards, which training.objective {objective} needs: "
                "add conversations, or hold out a larger share of them"
            )


def _check_lengths(told: str, shard: Shard, seq_len: int, chat: ChatIds) -> None:
    long = np.flatnonzero(shard.lengths > seq_len + 1)
    roles = [chat.system, chat.user, chat.assistant, chat.tool]
    for document in long[np.isin(shard.seconds(long), roles)][:1]:
        raise TrainerError(
            f"{told}: document {document} has {shard.lengths[document]} tokens, but a row of seq_len "
            f"{seq_len} holds {seq_len + 1}: raise it, or tokenize for it"
        )


def _check_disk(config: RunConfig) -> None:
    training, wanted = config.training, config.training.checkpoint
    # In fp32: the exported weights, at most two moments, and the averages.
    copies = 3 + copies_with_averages(training)
    model_bytes = 4 * training.model.parameters(padded_vocab_size(config.data.vocab_size))
    most = training.max_tokens
    made = min(training.steps, -(-most // (wanted.every_tokens or 1)))
    # Old checkpoints are removed after the commit, so one more than is kept exists for a moment.
    branches = len(training.curriculum.branch_steps) if wanted.keeps_branch_points else 0
    whole = kept = wanted.keep_last + 1 + branches + most // (wanted.keep_every_tokens or most + 1)
    averaged = len(training.averaged_steps)  # those beyond `keep_last` without the optimizer's state
    kept, made = max(kept, averaged + 1), max(made, averaged) + branches
    missing = max(1, min(kept, made) - len(publish.existing(config.run_dir / "checkpoints")))
    # The newest one loses its optimizer's state when the next one is committed.
    whole = min(missing, whole) if wanted.optimizer == "all" else min(missing, 2)
    needed = model_bytes * (missing + (copies - 1) * whole)
    directory = config.run_dir.absolute()
    free = shutil.disk_usage(next(filter(Path.exists, (directory, *directory.parents)))).free
    if needed > free:
        raise TrainerError(
            f"{config.run_dir}: {free / 1e6:,.0f} MB free, but {counted(missing, 'checkpoints')} of "
            f"{needed / missing / 1e6:,.0f} MB will be written. Free some space, lower "
            "training.checkpoint.keep_last"
            + (", set training.checkpoint.optimizer to newest" if wanted.optimizer == "all" else "")
            + ", or use another run_dir"
        )


def _check_memory(config: RunConfig, world: World) -> None:
    training, free = config.training, free_memory(world.device)
    vocab_size = config.data.vocab_size
    # The estimate is for an unsplit model. A split one that is too large fails at the first batch.
    if training.parallel.splits_model or is_ample(free, training, vocab_size):
        return
    needed = Footprint.measure(training, vocab_size, world.size, world.device).memory()
    told = f"training needs {needed}, and {free / 1e6:,.0f} MB are free on {world.device}"
    if needed.total <= free:
        log.info(told)
    elif compiler.compiles(training, world.device) and needed.lasting <= free:
        # Compiled blocks keep less than the estimate, which is of uncompiled ones.
        log.warning("%s; compiled it may fit, the first batch will show", told)
    else:
        smaller = "take a smaller model"
        if needed.activations > needed.lasting:
            smaller = f"lower training.micro_batch_size (now {training.micro_batch_windows})"
        raise TrainerError(f"{told}; {smaller}, lower training.seq_len, or free some memory")


def _warn_of_long_validations(config: RunConfig) -> None:
    training, wanted = config.training, config.training.evaluation
    packed = training.objective != "pretrain"
    parts = held_out(config.data, training.seq_len, wanted.max_tokens, packed)
    tokens = sum(part.tokens for part in parts)
    evaluations = min(training.steps, -(-training.max_tokens // wanted.every_tokens))
    share = FORWARD_SHARE * evaluations * tokens / training.max_tokens
    if share > LONG_VALIDATION_SHARE:
        log.warning(
            f"validation will take about {share:.0%} of the time of the training steps: {evaluations} times "
            f"{tokens:,} held-out tokens. Raise training.evaluation.every_tokens (now "
            f"{wanted.every_tokens:,}), or set training.evaluation.max_tokens"
        )
