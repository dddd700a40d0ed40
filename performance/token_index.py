"""The index of token shards: tokens a second of one core, bytes a token, memory, and the time of a question.

`python performance/token_index.py` needs the sample corpora in ../shared/corpora, which have 74 MB. To have
50 M tokens, the text is there twice more with its ids exchanged: other text of the same statistics.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from harness.processes import peak_mb
from harness.sidebyside import REPEATS, documents, record

from pipeline.stages import bpe, suffixes
from pipeline.steps.tokens.token_index import TokenSearch, of_shards
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.tokens.stored_shards import FIRST, put_shards

NAMES = ("books", "enwiki", "techdocs")
VOCABULARY, TOKENS, TEXT = 8192, 50_000_000, 512
PASSAGES, CHARACTERS = 500, 300


def main() -> None:
    texts = [document["text"] for name in NAMES for document in documents(name)]
    params = bpe.TokenizerParams(vocab_size=VOCABULARY - FIRST)
    sample = [text[:10_000] for text in texts[:: max(1, len(texts) // 1000)]]
    trained = bpe.files(bpe.train(iter([pa.array(sample)]), params))
    ends = bpe.boundaries(trained["tokenizer.json"], trained["tokenizer_config.json"])
    encoder = bpe.Encoder(trained["tokenizer.json"], ends, fast=True)
    ids, lengths = encoder.encode(pa.array(texts, pa.large_string()))
    chooser, copies = np.random.default_rng(1), [ids]
    while sum(map(len, copies)) < TOKENS:
        copies.append(chooser.permutation(VOCABULARY).astype(ids.dtype)[ids])
    report = {"tokens": sum(map(len, copies))}
    with TemporaryDirectory() as directory:
        for dtype in (np.uint32, np.uint16):
            parts = {
                f"copy{number}": np.split(copy, np.cumsum(lengths)[:-1]) for number, copy in enumerate(copies)
            }
            shards = put_shards(store := Store(Path(directory) / dtype.__name__), parts, dtype)
            started = time.process_time()
            index = of_shards(store, LocalEngine(workers=1), shards)
            seconds = time.process_time() - started
            name = dtype.__name__
            report[name] = {
                "mtokens_per_s_processor_time": round(report["tokens"] / seconds / 1e6, 2),
                "bytes_per_token": round(index.bytes / report["tokens"], 3),
                "peak_mb": peak_mb(
                    sort, directory, name, copies[0][: int(1.05 * suffixes.BLOCK_TOKENS)].astype(dtype)
                ),
            }
        report["search"] = searched(TokenSearch(shards, index), copies[0])
        del parts
    record("token_index", report, ("numpy", "numba"))


def sort(directory: str, name: str, tokens: np.ndarray) -> None:
    """What a process of its own does for a block."""
    suffixes.suffix_array(tokens)


def searched(index: TokenSearch, ids: np.ndarray) -> dict[str, object]:
    """Milliseconds, warm: all runs of 16 in 512 tokens of which every other 32 are text; a count."""
    chooser, runs = np.random.default_rng(2), partial(index.runs, least=16)
    starts = chooser.integers(0, len(ids) - TEXT, REPEATS * 20)
    asked = [ids[start : start + TEXT].astype(np.int64) for start in starts]
    for text in asked:
        noise = (np.arange(TEXT) // 32) % 2 == 1
        text[noise] = chooser.integers(FIRST, VOCABULARY, noise.sum())
    return {
        "blocks": len(index._blocks),
        "runs_ms": milliseconds(runs, asked),
        "whole_text_found_ms": milliseconds(runs, [ids[s : s + TEXT].astype(np.int64) for s in starts]),
        "count_ms": milliseconds(index.count, [text[:16] for text in asked]),
    }


def milliseconds(ask: Callable[[np.ndarray], object], asked: list[np.ndarray]) -> float:
    for text in asked:
        ask(text)
    seconds = []
    for text in asked:
        started = time.perf_counter()
        ask(text)
        seconds.append(time.perf_counter() - started)
    return round(1000 * statistics.median(seconds), 3)


if __name__ == "__main__":
    sys.exit(main())
