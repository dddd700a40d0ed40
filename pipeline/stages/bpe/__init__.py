"""Byte-level BPE: training and encoding, in the formats of Hugging Face `tokenizers`."""

from pipeline.stages.bpe.counts import CountedWords, added, count_words
from pipeline.stages.bpe.encode import Boundaries, Encoder, MismatchError, boundaries, unsupported
from pipeline.stages.bpe.given_back import GivenBack
from pipeline.stages.bpe.params import (
    CHAT_TEMPLATE,
    CONTROL,
    KINDS,
    MAX_DOCUMENT_CHARS,
    SPECIALS,
    TRAINING_TEMPLATE,
    ExistingTokenizer,
    TokenizerChoice,
    TokenizerError,
    TokenizerParams,
    VocabularyError,
)
from pipeline.stages.bpe.sample import Checked, budgets
from pipeline.stages.bpe.train import files, first_entries, train, train_on_words, with_chat

VERSION = "bpe-2"
