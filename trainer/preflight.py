"""What is checked before the first step, so that a run that cannot work says so at once and touches nothing."""

import hashlib
import shutil
from pathlib import Path

import numpy as np

from trainer.checkpoint import store
from trainer.config import CorpusShards, RunConfig
from trainer.errors import TrainerError
from trainer.model import padded_vocab_size
from trainer.shards import Shard, ShardError, bin_path, idx_path

BLOCK_TOKENS = 8 * 1024 * 1024


def check(config: RunConfig, world_size: int) -> dict[str, str]:
    """TrainerError for what cannot work; otherwise the hash of each corpus' shards (train and validation), by its name. Reads every token once."""
    _check_batch(config, world_size)
    _check_tokenizer(config)
    hashes = {corpus.name: _check_shards(corpus, config.data.vocab_size) for corpus in config.data.corpora}
    _check_disk(config)
    return hashes


def _check_batch(config: RunConfig, world_size: int) -> None:
    training = config.training
    if training.global_batch_size % (training.micro_batch_size * world_size):
        raise TrainerError(
            f"training.global_batch_tokens {training.global_batch_tokens} gives {training.global_batch_size} windows of seq_len {training.seq_len}, "
            f"not a multiple of micro_batch_size x processes ({training.micro_batch_size} x {world_size}); change one of them"
        )


def _check_tokenizer(config: RunConfig) -> None:
    path = config.data.tokenizer / "tokenizer.json"
    if not path.is_file():
        raise TrainerError(f"{path}: no such file; data.tokenizer is a directory with tokenizer.json")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != config.data.tokenizer_sha256:
        raise TrainerError(
            f"{path} has sha256 {found}, but the token shards were made with {config.data.tokenizer_sha256}: "
            "tokenize again, or point data.tokenizer at the tokenizer that made them"
        )


def _check_shards(corpus: CorpusShards, vocab_size: int) -> str:
    digest = hashlib.sha256()
    for prefix in [*corpus.train, *corpus.validation]:
        try:
            shard = Shard(prefix)
        except ShardError as error:
            raise TrainerError(f"corpus {corpus.name!r}: {error}") from error
        digest.update(idx_path(prefix).read_bytes())
        for start in range(0, shard.num_tokens, BLOCK_TOKENS):
            block = shard.tokens[start : start + BLOCK_TOKENS]
            if int(block.max()) >= vocab_size:
                position = start + int(np.argmax(block >= vocab_size))
                document = int(np.searchsorted(np.cumsum(shard.lengths, dtype=np.int64), position, side="right"))
                raise TrainerError(
                    f"corpus {corpus.name!r}: {bin_path(prefix)}: document {document} holds id {int(shard.tokens[position])}, "
                    f"but data.vocab_size is {vocab_size}; these shards are of another tokenizer"
                )
            digest.update(block.tobytes())
    return digest.hexdigest()


def _check_disk(config: RunConfig) -> None:
    training = config.training
    model = training.model
    padding = padded_vocab_size(config.data.vocab_size) - config.data.vocab_size
    parameters = model.parameters(config.data.vocab_size) + padding * model.d_model * (1 if model.tie_embeddings else 2)
    checkpoint_bytes = 12 * parameters  # fp32 weights and at most two moments
    made = -(-training.max_tokens // training.checkpoint.every_tokens)
    # Retention comes after the commit, so one more than are kept exists for a moment.
    wanted = min(training.checkpoint.keep_last + 1, made) - len(store.existing(config.run_dir / "checkpoints"))
    free = shutil.disk_usage(_existing_parent(config.run_dir)).free
    if max(1, wanted) * checkpoint_bytes > free:
        raise TrainerError(
            f"{config.run_dir}: {free / 1e6:,.0f} MB free, but {max(1, wanted)} checkpoints of {checkpoint_bytes / 1e6:,.0f} MB are to be made; "
            "free some space, lower training.checkpoint.keep_last, or choose another run_dir"
        )


def _existing_parent(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
