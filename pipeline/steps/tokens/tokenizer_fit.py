"""Measures how well the tokenizer fits each corpus, on held-out text, which it was not trained on."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages import bpe
from pipeline.stages.held_out import held_out
from pipeline.steps.tokens.tokenizer import FrozenTokenizer
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.store.manifest import Version
from pipeline.store.parts import kept_documents
from pipeline.store.store import Store

REPORT = "fit-3"
SAMPLE_BYTES = 2_000_000  # of each corpus

Row = dict[str, Any]


def fit(store: Store, stage: FrozenTokenizer, version: Version) -> list[Row]:
    """A row for each corpus with held-out text, measured on its first documents, about SAMPLE_BYTES, once for
    each tokenizer and text. The tokens for begin and end of text are not counted, and words are separated by
    white space.
    """
    text = [store.current(key).data_version for key in stage.inputs]
    return version.report(
        "fit", [REPORT, text, stage.validation_fraction], lambda: _measured(store, stage, version)
    )


def _measured(store: Store, stage: FrozenTokenizer, version: Version) -> list[Row]:
    tokenizer = TokenizerFiles.read(version.directory())
    fast = bpe.unsupported(tokenizer.tokenizer_json) is None
    encoder = bpe.Encoder(tokenizer.tokenizer_json, tokenizer.boundaries, fast)
    held_out_share = stage.validation_fraction
    rows = (_row(corpus, _held_out(store, corpus, held_out_share), encoder) for corpus in stage.corpora)
    return [row for row in rows if row]


def _held_out(store: Store, corpus: str, share: float) -> Iterator[pa.StringArray]:
    """The held-out texts of a corpus."""
    for batch in kept_documents(store, corpus):
        yield batch.column("text").filter(pa.array(held_out(batch.column("id"), share)))


def _row(corpus: str, held_out_texts: Iterator[pa.StringArray], encoder: bpe.Encoder) -> Row | None:
    documents = size = words = 0
    counts = np.zeros(encoder.max_id + 1, np.int64)
    for texts in held_out_texts:
        ids, lengths = encoder.encode(texts)
        counts += np.bincount(ids, minlength=len(counts))
        counts[encoder.ends.begin] -= len(lengths)
        counts[encoder.ends.end] -= len(lengths)
        words += sum(len(text.split()) for text in texts.to_pylist())
        documents += len(texts)
        size += pc.sum(pc.binary_length(texts)).as_py() or 0
        if size >= SAMPLE_BYTES:
            break
    tokens = int(counts.sum())
    if tokens == 0:
        return None
    return {
        "corpus": corpus,
        "bytes per token": round(size / tokens, 3),
        "tokens per word": round(tokens / max(words, 1), 3),
        "vocabulary used": f"{(counts > 0).mean():.1%}",
        "held-out documents": documents,
        "held-out bytes": size,
    }
