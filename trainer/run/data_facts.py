"""Compares what a configuration says of its data with the data."""

from tokenizers import Tokenizer

from trainer.config import DataConfig
from trainer.system.errors import TrainerError


def check(data: DataConfig, tokenizer: Tokenizer) -> None:
    """Raises TrainerError when the vocabulary is not the tokenizer's, or when text that is trained on
    validates.
    """
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
