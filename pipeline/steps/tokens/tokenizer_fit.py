"""Measures how well the tokenizer fits each corpus, on held-out text, which it was not trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from pipeline.stages import tokenizer as bpe
from pipeline.steps.tokens.tokenizer import frozen
from pipeline.store.manifest import Version
from pipeline.store.parts import kept_documents
from pipeline.store.store import Store

SAMPLE_BYTES = 2_000_000  # of each corpus


@dataclass(frozen=True)
class Usage:
    """The encoded sample of one corpus. `counts` [largest id + 1]: how often each token occurs."""

    corpus: str
    documents: int
    text_bytes: int
    words: int
    counts: np.ndarray

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())

    @property
    def bytes_per_token(self) -> float:
        return self.text_bytes / max(self.tokens, 1)

    @property
    def fertility(self) -> float:
        """Tokens per word; words are separated by white space."""
        return self.tokens / max(self.words, 1)

    @property
    def coverage(self) -> float:
        """Share of the vocabulary that occurs."""
        return float((self.counts > 0).mean())


def usage(store: Store, corpora: Sequence[str], version: Version, validation_fraction: float) -> list[Usage]:
    """Encodes the first held-out documents of each corpus, about SAMPLE_BYTES. The tokens for begin and end
    of text are not counted.
    """
    tokenizer = frozen(version.directory())
    fast = bpe.unsupported(tokenizer.tokenizer_json) is None
    encoder = bpe.Encoder(tokenizer.tokenizer_json, tokenizer.boundaries, fast)
    return [_of_corpus(store, corpus, encoder, validation_fraction) for corpus in corpora]


def _of_corpus(store: Store, corpus: str, encoder: bpe.Encoder, validation_fraction: float) -> Usage:
    documents = size = words = 0
    counts = np.zeros(encoder.max_id + 1, np.int64)
    for batch in kept_documents(store, corpus):
        texts = batch.column("text").filter(pa.array(bpe.held_out(batch.column("id"), validation_fraction)))
        ids, lengths = encoder.encode(texts)
        counts += np.bincount(ids, minlength=len(counts))
        counts[encoder.ends.begin] -= len(lengths)
        counts[encoder.ends.end] -= len(lengths)
        words += sum(len(text.split()) for text in texts.to_pylist())
        documents += len(texts)
        size += pc.sum(pc.binary_length(texts)).as_py() or 0
        if size >= SAMPLE_BYTES:
            break
    return Usage(corpus, documents, size, words, counts)


def longest_tokens(version: Version, number: int) -> list[str]:
    """The longest entries as text, longest first, without special tokens."""
    tokenizer = Tokenizer.from_str(frozen(version.directory()).tokenizer_json)
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    entries = [(len(token), entry) for token, entry in tokenizer.get_vocab().items() if token not in special]
    longest = sorted(entries, reverse=True)[:number]
    return [tokenizer.decode([entry], skip_special_tokens=False) for _, entry in longest]
