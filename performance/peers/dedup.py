"""MinHash signatures and dedup by peers, each as its documentation shows it, and by us."""

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import datasketch
import numpy as np
import pyarrow.parquet as pq
import xxhash

from pipeline.stages.dedup import DedupParams
from tests.pipeline.stages.dedup.in_memory import deduplicate

PARAMS = DedupParams()
WORD = re.compile(r"\w+")
xxh32 = xxhash.xxh32_intdigest


def shingles(text: str) -> set[bytes]:
    words = WORD.findall(text.lower())
    return {
        " ".join(words[i : i + PARAMS.ngram]).encode() for i in range(max(1, len(words) - PARAMS.ngram + 1))
    }


def ours(path: Path) -> set[int]:
    documents = list(pq.ParquetFile(path).iter_batches(5000, columns=["id", "text"]))
    return set(
        np.flatnonzero(~deduplicate(documents, [0] * len(documents), PARAMS)["keep"].to_numpy()).tolist()
    )


def datasketch_signature(
    text: str, hashfunc: Callable[[bytes], int] | None = None, num_perm: int = PARAMS.num_perm
) -> datasketch.MinHash:
    sketch = datasketch.MinHash(num_perm=num_perm, hashfunc=hashfunc)
    sketch.update_batch(shingles(text))
    return sketch


def datasketch_loop(path: Path, bands: int | None = None, rows: int = 0) -> set[int]:
    """Query, drop what finds a neighbor, insert the rest. Without bands, what datasketch picks for a
    threshold of 0.8 and 128 permutations.
    """
    num_perm = bands * rows if bands else 128
    index, removed = (
        datasketch.MinHashLSH(threshold=0.8, num_perm=num_perm, params=(bands, rows) if bands else None),
        set(),
    )
    for i, text in enumerate(pq.read_table(path)["text"].to_pylist()):
        sketch = datasketch_signature(text, xxh32, num_perm)
        if index.query(sketch):
            removed.add(i)
        else:
            index.insert(i, sketch)
    return removed


def rensa_signatures(texts: Sequence[str]) -> None:
    for text in texts:
        rensa_signature(text)


def rensa_signature(text: str) -> object:
    import rensa

    sketch = rensa.RMinHash(num_perm=PARAMS.num_perm, seed=1)
    sketch.update([shingle.decode() for shingle in shingles(text)])
    return sketch


def rensa_loop(path: Path) -> set[int]:
    import rensa

    index, removed = rensa.RMinHashLSH(threshold=0.8, num_perm=PARAMS.num_perm, num_bands=PARAMS.bands), set()
    for i, text in enumerate(pq.read_table(path)["text"].to_pylist()):
        sketch = rensa_signature(text)
        if index.query(sketch):
            removed.add(i)
        else:
            index.insert(i, sketch)
    return removed


def daft_signatures(texts: Sequence[str]) -> Callable[[], object]:
    """Its expression splits at spaces and normalizes nothing."""
    import daft

    frame = daft.from_pydict({"text": list(texts)})
    column = daft.col("text").minhash(
        num_hashes=PARAMS.num_perm, ngram_size=PARAMS.ngram, hash_function="xxhash64"
    )
    return lambda: frame.select(column).collect()


def datatrove_config(bands: int, rows: int):  # type: ignore[no-untyped-def]
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.utils.hashing import HashConfig

    # sha1, because datatrove hands strings to xxhash, which xxhash 4 refuses; the tokenizer takes most of the
    # time.
    return MinhashConfig(
        n_grams=PARAMS.ngram,
        num_buckets=bands,
        hashes_per_bucket=rows,
        hash_config=HashConfig(hash_fc="sha1"),
    )


def datatrove_signatures(texts: Sequence[str]) -> Callable[[], object]:
    from datatrove.pipeline.dedup.minhash import MinhashDedupSignature

    stage = MinhashDedupSignature("unused", config=datatrove_config(PARAMS.bands, PARAMS.rows))
    stage.get_shingles("loads the tokenizer, which is not what is measured")
    return lambda: [stage.get_signature(found) for text in texts if len(found := stage.get_shingles(text))]


def datatrove_stages(path: Path, bands: int, rows: int) -> set[int]:
    """Signatures, buckets, clusters, filter: one task after the other."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup.minhash import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter
    from loguru import logger

    logger.remove()
    config = datatrove_config(bands, rows)
    with tempfile.TemporaryDirectory() as folder:
        reader = ParquetReader(str(path.parent), glob_pattern=path.name)
        stages = [
            ([reader, MinhashDedupSignature(f"{folder}/signatures", config=config)], 1),
            ([MinhashDedupBuckets(f"{folder}/signatures", f"{folder}/buckets", config=config)], bands),
            ([MinhashDedupCluster(f"{folder}/buckets", f"{folder}/remove", config=config)], 1),
            ([reader, MinhashDedupFilter(f"{folder}/remove"), ParquetWriter(f"{folder}/kept")], 1),
        ]
        for number, (stage, tasks) in enumerate(stages):
            LocalPipelineExecutor(stage, tasks=tasks, workers=1, logging_dir=f"{folder}/logs/{number}").run()
        kept = {
            int(name)
            for file in Path(folder, "kept").glob("*.parquet")
            for name in pq.read_table(file, columns=["id"])["id"].to_pylist()
        }
        return set(range(pq.read_metadata(path).num_rows)) - kept
