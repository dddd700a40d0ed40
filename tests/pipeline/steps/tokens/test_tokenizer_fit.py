"""How well a tokenizer fits each corpus."""

from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from pipeline.stages import bpe
from pipeline.stages.dedup import DedupParams
from pipeline.stages.held_out import held_out
from pipeline.steps.tokens import tokenizer_fit
from pipeline.steps.tokens.tokenizer import FrozenTokenizer
from pipeline.store.parts import kept_documents
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS, prepare
from tests.pipeline.steps.make import deduplicate

HELD_OUT = 0.3


def test_the_fit_is_that_of_held_out_text_and_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    corpora = {"first": TEXTS[:15], "none_held_out": TEXTS[15:16]}
    for name, texts in corpora.items():
        prepare(store, tmp_path / f"{name}.jsonl", texts)
    deduplicate(store, ENGINE, list(corpora), DedupParams())
    stage = FrozenTokenizer("test", list(corpora), bpe.TokenizerParams(vocab_size=600), HELD_OUT)
    version = stage.make(store, ENGINE)
    rows = {row["corpus"]: row for row in tokenizer_fit.fit(store, stage, version)}
    kept = pa.Table.from_batches(kept_documents(store, "first"))
    texts = kept["text"].filter(pa.array(held_out(kept["id"].combine_chunks(), HELD_OUT))).to_pylist()
    encoder = Tokenizer.from_file(str(version.path / "tokenizer.json"))
    tokens = [token for text in texts for token in encoder.encode(text, add_special_tokens=False).ids]
    size = sum(len(text.encode()) for text in texts)
    assert list(rows) == ["first"]
    assert rows["first"] == {
        "corpus": "first",
        "bytes per token": round(size / len(tokens), 3),
        "tokens per word": round(len(tokens) / sum(len(text.split()) for text in texts), 3),
        "vocabulary used": f"{len(set(tokens)) / version.counts['entries']:.1%}",
        "held-out documents": len(texts),
        "held-out bytes": size,
    }
    monkeypatch.setattr(tokenizer_fit.bpe, "Encoder", None)
    assert tokenizer_fit.fit(store, stage, version) == list(rows.values())
