"""From Parquet to token shards beside the ways others do it, with one vocabulary; encoders alone; and memory.

`python performance/tokenizing.py` needs the sample corpora in ../shared/corpora; tiktoken, datasets and
datatrove are measured where importable. `--memory` writes 25 MB and 2.5 GB instead and compares peaks. Each
job runs in a process of its own, the slow ones on every so-many-th of the same documents; their processes are
two, as ours are. Imports are not counted, starting worker processes is.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import kept_corpus
from harness.alone import alone, here, in_turns
from harness.sidebyside import Contender, documents, importable, measure, record, sample, size_of, texts
from tokenizers import Tokenizer

from pipeline.recipe.sections import ShardParams
from pipeline.stages import bpe
from pipeline.stages.bpe.train import LLAMA3_PATTERN
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import tokenize, tokenizer

NAMES = ("enwiki", "techdocs", "books")
PARAMS = bpe.TokenizerParams(vocab_size=8192, sample_bytes=30_000_000)
REPEATS = 3
PART_BYTES = 32_000_000


def ours(prepared: Path, workers: int) -> int:
    """In one process (which encodes on all its cores) or in worker processes."""
    store = Store(prepared / "store")
    engine = LocalEngine(workers, processes_pay_above=0)
    version = tokenize(store, engine, kept_corpus.NAME, ShardParams())
    engine.close()
    return version.counts["train_tokens"] + version.counts["validation_tokens"]


def nanogpt(prepared: Path, processes: int) -> int:
    """data/openwebtext/prepare.py: datasets.map over processes, ids as lists in Arrow, then a memmap."""
    from datasets import load_dataset

    found = load_dataset(
        "parquet",
        data_files=str(prepared / "sample.parquet"),
        split="train",
        cache_dir=str(prepared / "cache"),
    )
    encoding, ends = _tiktoken(prepared), _frozen(prepared).boundaries

    def encode(example: dict[str, Any]) -> dict[str, Any]:
        ids = [*encoding.encode_ordinary(example["text"]), ends.end]
        return {"ids": ids, "len": len(ids)}

    encoded = found.map(encode, remove_columns=["id", "text"], num_proc=processes, load_from_cache_file=False)
    total = int(np.sum(encoded["len"], dtype=np.uint64))
    tokens = np.memmap(prepared / "nanogpt.bin", dtype=np.uint16, mode="w+", shape=(total,))
    at, shards = 0, min(1024, len(encoded))
    for index in range(shards):
        batch = np.concatenate(
            encoded.shard(num_shards=shards, index=index, contiguous=True).with_format("numpy")["ids"]
        )
        tokens[at : at + len(batch)] = batch
        at += len(batch)
    tokens.flush()
    return total


def megatron(prepared: Path, processes: int) -> int:
    """tools/preprocess_data.py: a pool encodes JSON lines one document at a time, one process writes."""
    total = 0
    pool = multiprocessing.get_context("spawn").Pool(processes, _megatron_start, (prepared,))
    with (
        pool,
        (prepared / "megatron.bin").open("wb") as out,
        (prepared / "sample.jsonl").open(encoding="utf-8") as lines,
    ):
        for ids in pool.imap(_megatron_encode, lines, 32):
            out.write(np.array(ids, np.uint16).tobytes())
            total += len(ids)
    return total


def _megatron_start(prepared: Path) -> None:
    global _megatron
    _megatron = Tokenizer.from_str(_frozen(prepared).tokenizer_json), _frozen(prepared).boundaries.end


def _megatron_encode(line: str) -> list[int]:
    encoder, end = _megatron
    return [*encoder.encode(json.loads(line)["text"], add_special_tokens=False).ids, end]


def datatrove(prepared: Path, processes: int) -> None:
    from datatrove.executor.local import LocalPipelineExecutor
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    writer = DocumentTokenizer(
        str(prepared / "datatrove"), str(_tokenizer(prepared)), eos_token="[EOT]", shuffle_documents=False
    )
    steps = [ParquetReader(str(prepared / "halves")), writer]
    LocalPipelineExecutor(
        steps, tasks=processes, workers=processes, logging_dir=str(prepared / "logs"), skip_completed=False
    ).run()


JOBS: dict[str, Callable[[Path, int], Any]] = {
    "ours": ours,
    "nanogpt": nanogpt,
    "megatron": megatron,
    "datatrove": datatrove,
}


def _tokenizer(prepared: Path) -> Path:
    return Store(prepared / "store").current(keys.TOKENIZER).path / "tokenizer.json"


def _frozen(prepared: Path) -> Any:
    return TokenizerFiles.read(_tokenizer(prepared).parent)


def _tiktoken(prepared: Path) -> Any:
    """The same vocabulary: merges by rank are merges in their order."""
    import tiktoken
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = json.loads(_frozen(prepared).tokenizer_json)["model"]["vocab"]
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {chr(byte): byte for byte in printable} | {
        chr(256 + n): byte for n, byte in enumerate(b for b in range(256) if b not in printable)
    }
    assert set(shown) == set(ByteLevel.alphabet())
    ranks = {
        bytes(shown[character] for character in token): number
        for token, number in vocabulary.items()
        if token not in bpe.SPECIALS.values()
    }
    return tiktoken.Encoding("ours", pat_str=LLAMA3_PATTERN, mergeable_ranks=ranks, special_tokens={})


def prepare(directory: Path, found: list[str]) -> float:
    """The corpus in a store with its tokenizer, and the same texts as Parquet and as JSON lines."""
    directory.mkdir()
    store = Store(directory / "store")
    megabytes = kept_corpus.keep_all(store, found, PART_BYTES)
    tokenizer(
        store, LocalEngine(1), "benchmark", [kept_corpus.NAME], PARAMS, ShardParams().validation_fraction
    )
    table = pa.table(
        {"id": [f"{number:032x}" for number in range(len(found))], "text": pa.array(found, pa.large_string())}
    )
    pq.write_table(table, directory / "sample.parquet", compression="zstd", row_group_size=500)
    (directory / "halves").mkdir()
    for half in (0, 1):
        pq.write_table(
            table.take(list(range(half, len(found), 2))),
            directory / "halves" / f"{half}.parquet",
            compression="zstd",
            row_group_size=500,
        )
    with (directory / "sample.jsonl").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": text}) + "\n" for text in found)
    return megabytes


def whole_jobs(directory: Path, found: list[str], peer_megabytes: float) -> dict[str, Any]:
    few = sample(found, peer_megabytes)
    size, few_size = prepare(directory / "all", found), prepare(directory / "few", few)
    everything, part = str(directory / "all"), str(directory / "few")
    contenders = {
        "groundwork, one process": (size, ("--one", "ours", everything, "1")),
        "groundwork, two processes": (size, ("--one", "ours", everything, "2")),
        "groundwork, one process, the peers' sample": (few_size, ("--one", "ours", part, "1")),
    }
    if importable("tiktoken", "datasets"):
        contenders["nanoGPT's prepare.py, tiktoken, two processes"] = (
            few_size,
            ("--one", "nanogpt", part, "2"),
        )
    contenders["Megatron's loop, tokenizers, two processes"] = (few_size, ("--one", "megatron", part, "2"))
    if importable("datatrove"):
        contenders["datatrove's DocumentTokenizer, two processes"] = (
            few_size,
            ("--one", "datatrove", part, "2"),
        )
    return in_turns(__file__, contenders, REPEATS)


def encoders(directory: Path, found: list[str], peer_megabytes: float) -> dict[str, Any]:
    """On one core, on texts in memory; `cold` loads the tokenizer anew each time."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    kept, few = _frozen(directory), sample(found, peer_megabytes)
    column, part = pa.array(found, pa.large_string()), pa.array(few, pa.large_string())
    fast, slow = (bpe.Encoder(kept.tokenizer_json, kept.boundaries, fast) for fast in (True, False))
    contenders = {
        "gigatoken as we call it, cold": Contender(
            size_of(found), lambda: bpe.Encoder(kept.tokenizer_json, kept.boundaries, True).encode(column)
        ),
        "gigatoken as we call it, warm": Contender(size_of(found), partial(fast.encode, column)),
        "tokenizers, encode_batch_fast": Contender(size_of(few), partial(slow.encode, part)),
    }
    if importable("tiktoken"):
        encoding = _tiktoken(directory)
        contenders["tiktoken, encode_ordinary"] = Contender(
            size_of(few), lambda: [encoding.encode_ordinary(text) for text in few]
        )
        same = np.concatenate([encoding.encode_ordinary(text) for text in few])
        ids, lengths = fast.encode(part)
        inside = ~np.isin(
            np.arange(len(ids)), np.concatenate([np.cumsum(lengths) - 1, np.cumsum(lengths) - lengths])
        )
        assert np.array_equal(ids[inside], same), "tiktoken was given another vocabulary"
    return measure(contenders)


def memory(directory: Path) -> dict[str, Any]:
    """The peak of the job over 25 MB and over 2.5 GB, in parts of the default size."""
    found = {}
    for megabytes in (25, 2500):
        store = Store(directory / str(megabytes) / "store")
        size = kept_corpus.keep_all(store, _endless(megabytes), 128_000_000)
        tokenizer(
            store, LocalEngine(1), "benchmark", [kept_corpus.NAME], PARAMS, ShardParams().validation_fraction
        )
        ran = alone(__file__, "--one", "ours", str(store.root.parent), "1")
        found[f"{megabytes} MB"] = {
            "mb": round(size),
            "peak_mb": ran["peak_mb"],
            "mb_per_s": round(size / ran["seconds"], 1),
        }
    return found


def _endless(megabytes: float) -> Iterator[str]:
    rows = cycle(NAMES)
    size = 0
    while True:
        for row in documents(next(rows)):
            if size >= megabytes * 1e6:
                return
            size += len(row["text"].encode())
            yield row["text"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=float, default=150)
    options.add_argument("--peer-megabytes", type=float, default=15)
    options.add_argument("--memory", action="store_true")
    options.add_argument("--one", nargs=3, metavar=("JOB", "PREPARED", "PROCESSES"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        job, prepared, processes = chosen.one
        shutil.rmtree(Path(prepared) / "store" / "token_shards", ignore_errors=True)
        here(lambda: JOBS[job](Path(prepared), int(processes)))
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if chosen.memory:
            record("tokenizing_memory", {"peak": memory(directory)}, ("gigatoken", "tokenizers", "pyarrow"))
            return
        found = texts(NAMES, chosen.megabytes)
        report = {"whole job": whole_jobs(directory, found, chosen.peer_megabytes)}
        report["encoders, one core"] = encoders(
            directory / "all", list(islice(found, 4000)), chosen.peer_megabytes
        )
        record(
            "tokenizing", report, ("gigatoken", "tokenizers", "tiktoken", "datasets", "datatrove", "pyarrow")
        )


if __name__ == "__main__":
    main()
