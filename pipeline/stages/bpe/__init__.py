"""Byte-level BPE: training and encoding, in the formats of Hugging Face `tokenizers`."""

from pipeline.stages.bpe.chat_template import CHAT_TEMPLATE, TRAINING_TEMPLATE
from pipeline.stages.bpe.counts import CountedWords, added, count_words
from pipeline.stages.bpe.encode import Boundaries, Encoder, MismatchError, boundaries, unsupported
from pipeline.stages.bpe.given_back import GivenBack
from pipeline.stages.bpe.params import (
    CONTROL,
    KINDS,
    MAX_DOCUMENT_CHARS,
    SPECIALS,
    ExistingTokenizer,
    TokenizerChoice,
    TokenizerError,
    TokenizerParams,
    VocabularyError,
)
from pipeline.stages.bpe.sample import Checked, budgets
from pipeline.stages.bpe.train import files, first_entries, train, train_on_words, with_chat

VERSION = "bpe-2"
