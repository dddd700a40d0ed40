"""Byte-level BPE: training and encoding, in the formats of Hugging Face `tokenizers`."""

from pipeline.stages.tokenizer.counts import CountedWords, added, count_words
from pipeline.stages.tokenizer.encode import Boundaries, Encoder, MismatchError, boundaries, unsupported
from pipeline.stages.tokenizer.given_back import GivenBack
from pipeline.stages.tokenizer.params import (
    CHAT_TEMPLATE,
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
from pipeline.stages.tokenizer.sample import Checked, budgets
from pipeline.stages.tokenizer.train import files, train, train_on_words, with_chat

VERSION = "bpe-2"
