"""Compares what a configuration says of its data with the data."""

import json

from tokenizers import Tokenizer

from trainer.config import CorpusShards, DataConfig
from trainer.data.shards import Shard, ShardError
from trainer.system.errors import TrainerError


def check(data: DataConfig, tokenizer: Tokenizer) -> None:
    """Raises TrainerError when the vocabulary is not the tokenizer's, when text that is trained on validates,
    or when the held-out text cannot have the bytes that it is said to have.
    """
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    size = 1 + max(vocabulary.values(), default=-1)
    if data.vocab_size != size:
        raise TrainerError(
            f"data.vocab_size is {data.vocab_size}, but the tokenizer in {data.tokenizer} has {size} "
            f"entries: set it to {size}"
        )
    _check_splits(data.corpora)
    # Elsewhere a token may stand for any number of bytes: text is normalised, or unknown to the tokenizer.
    if _is_byte_level(tokenizer):
        longest = max(map(len, vocabulary))
        for corpus in data.corpora:
            _check_bytes(corpus, longest)


def _check_splits(corpora: list[CorpusShards]) -> None:
    trained = {prefix.resolve(): corpus.name for corpus in corpora for prefix in corpus.train}
    for corpus in corpora:
        for prefix in corpus.validation:
            if learner := trained.get(prefix.resolve()):
                other = f" of corpus {learner!r}" if learner != corpus.name else ""
                raise TrainerError(
                    f"corpus {corpus.name!r}: {prefix} is in `validation` and in `train`{other}: its loss "
                    "says nothing about unseen text. Remove it from one of them"
                )


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    """Whether each character of a token stands for one byte of the text."""
    parts = json.loads(tokenizer.to_str())
    return parts["normalizer"] is None and (parts["decoder"] or {}).get("type") == "ByteLevel"


def _check_bytes(corpus: CorpusShards, longest: int) -> None:
    """`longest`: bytes of the longest token."""
    try:
        shards = [Shard(prefix) for prefix in corpus.validation]
    except ShardError as error:
        raise TrainerError(f"corpus {corpus.name!r}: {error}") from error
    documents = sum(shard.num_documents for shard in shards)
    tokens = sum(shard.num_tokens for shard in shards) - 2 * documents  # without begin and end
    if tokens <= 0:
        return  # other checks say so
    # Some tokenizers put a space before each document.
    least, most = tokens - documents, tokens * longest
    if not least <= corpus.validation_bytes <= most:
        raise TrainerError(
            f"corpus {corpus.name!r}: validation_bytes is {corpus.validation_bytes}, but the text of its "
            f"{tokens} held-out tokens has {max(least, 1)} to {most} bytes: set it to the UTF-8 bytes of "
            "that text"
        )
