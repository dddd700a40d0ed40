"""Byte-level BPE: training, and text to ids. The tokenizer is Hugging Face `tokenizers`'; nothing here invents a format."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipeline.errors import PipelineError
from pipeline.stages.params import Params

VERSION = "bpe-1"

# Llama 3's published pre-tokenization pattern (the cl100k family): contractions, words, up to three digits, punctuation, white space.
LLAMA3_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ALPHABET_SIZE = 256  # every byte is a token, so any text can be encoded
SPECIALS = 4  # unknown, padding, begin and end of text


class VocabularyError(PipelineError):
    """The text cannot support the vocabulary that was asked for."""


class TokenizerParams(Params):
    """A byte-level BPE vocabulary and the sample that it is trained on."""

    vocab_size: int = Field(8192, ge=ALPHABET_SIZE + SPECIALS, description="Entries, special tokens included.")
    pattern: Literal["gpt2", "llama3"] = Field("llama3", description="Pre-tokenization pattern: where merges stop.")
    single_digits: bool = Field(False, description="Split numbers into digits before merging.")
    unknown: str = "[UNK]"
    padding: str = "[PAD]"
    begin_of_text: str = "[BOT]"
    end_of_text: str = "[EOT]"
    sample_bytes: int = Field(
        1_000_000_000, gt=0, le=10_000_000_000, description="UTF-8 bytes to train on; pair counts are 32-bit, so at most 10 GB."
    )
    max_document_chars: int = Field(10_000, gt=0, description="Longer documents are cut for training: text without spaces makes one huge word.")

    @property
    def specials(self) -> list[str]:
        return [self.unknown, self.padding, self.begin_of_text, self.end_of_text]

    @model_validator(mode="after")
    def _specials_differ(self) -> "TokenizerParams":
        if len(set(self.specials)) < SPECIALS:
            raise ValueError(f"the four special tokens must differ, got {self.specials}")
        return self


def train(texts: Iterable[Sequence[str]], params: TokenizerParams) -> Tokenizer:
    """Trains on batches of texts, in their order; the same batches give the same vocabulary.

    Raises VocabularyError when pairs that occur twice run out before `vocab_size` is reached.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=None, byte_fallback=False))
    splits: list[pre_tokenizers.PreTokenizer] = []
    if params.single_digits:
        splits.append(pre_tokenizers.Digits(individual_digits=True))
    if params.pattern == "llama3":
        splits.append(pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated"))
    splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=params.pattern == "gpt2"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=params.vocab_size,
        min_frequency=2,
        special_tokens=params.specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_cut(texts, params.max_document_chars), trainer)
    reached = tokenizer.get_vocab_size()
    if reached < params.vocab_size:
        raise VocabularyError(
            f"tokenizer.vocab_size is {params.vocab_size}, but the text supports only {reached} entries: set it to {reached} or less, or add text"
        )
    return tokenizer


def _cut(texts: Iterable[Sequence[str]], max_chars: int) -> Iterator[list[str]]:
    for batch in texts:
        yield [text[:max_chars] for text in batch]


def files(tokenizer: Tokenizer, params: TokenizerParams) -> dict[str, str]:
    """The files that `transformers.AutoTokenizer` opens, name to content."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": params.unknown,
        "pad_token": params.padding,
        "bos_token": params.begin_of_text,
        "eos_token": params.end_of_text,
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e30),
    }
    specials = {name: config[name] for name in ("unk_token", "pad_token", "bos_token", "eos_token")}
    return {
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=2),
        "special_tokens_map.json": json.dumps(specials, indent=2),
    }


class Encoder:
    """Texts to documents of ids: `[BOT] ... [EOT]`. A special token's name inside a text is encoded as plain text."""

    def __init__(self, tokenizer_json: str, params: TokenizerParams):
        self.tokenizer = Tokenizer.from_str(tokenizer_json)
        self.tokenizer.encode_special_tokens = True
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        self.bot, self.eot = vocabulary[params.begin_of_text], vocabulary[params.end_of_text]
        self.max_id = max(vocabulary.values())

    def encode(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Flat ids (uint32) of all texts, and the number of ids of each (int64), begin and end included."""
        encodings = self.tokenizer.encode_batch_fast(texts.to_pylist(), add_special_tokens=False)
        lengths = np.fromiter((len(encoding) + 2 for encoding in encodings), np.int64, len(encodings))
        ends = np.cumsum(lengths)
        ids = np.empty(int(ends[-1]) if len(ends) else 0, np.uint32)
        for encoding, end, length in zip(encodings, ends, lengths, strict=True):
            ids[end - length] = self.bot
            ids[end - length + 1 : end - 1] = encoding.ids
            ids[end - 1] = self.eot
        return ids, lengths


def share_of(ids: pa.Array, purpose: str) -> np.ndarray:
    """A number in [0, 1) per document id, fixed by (purpose, id): which side of a split a document is on never depends on its neighbours."""
    salt = purpose.encode()[:16]
    hashes = (hashlib.blake2b(document.encode(), digest_size=8, person=salt).digest() for document in ids.to_pylist())
    return np.frombuffer(b"".join(hashes), dtype="<u8") / 2.0**64
