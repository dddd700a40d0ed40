"""Random windows of token shards beside what else reads tokens, on one core with a warm page cache; opening
10,000 shards; resuming anywhere.

`python performance/shard_reading.py [MILLION_TOKENS]`: 100 by default. Every contender gives 64 windows of
2,049 random tokens at a time as int64 (as its users get them), from one file of uint16 tokens or, ours, from
four shards. nanoGPT is its get_batch, mapping the file anew for each batch as it does; `datasets` holds
windows cut beforehand. Windows are medians of processor time, which other work on the machine disturbs least;
the rest is by the clock.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from harness.sidebyside import Contender, Report, importable, measure, record

from trainer.config import CorpusShards, DataConfig, TrainingConfig
from trainer.data.loader import TrainingData
from trainer.data.shard_writer import ShardWriter
from trainer.data.shards import TokenStream, bin_path, idx_path

SEQ_LEN, ROWS, BATCHES = 2048, 64, 40
LENGTH = SEQ_LEN + 1
SHARDS = 10_000
VOCAB = 32_768
Batch = Callable[[], object]


def write(directory: Path, tokens: int) -> list[Path]:
    """Four shards with documents of some hundred tokens, and all of them end to end as `train.bin`."""
    chooser, prefixes = np.random.default_rng(1), [directory / f"shard{number}" for number in range(4)]
    with (directory / "train.bin").open("wb") as file:
        for prefix in prefixes:
            lengths = chooser.integers(50, 1500, tokens // 4 // 775)
            ids = chooser.integers(0, VOCAB, int(lengths.sum()), dtype=np.uint16)
            with ShardWriter(prefix, ids.dtype) as writer:
                writer.add_documents(ids, lengths)
            file.write(ids.data)
    return prefixes


def ours(prefixes: Sequence[Path], chooser: np.random.Generator, dtype: type) -> Batch:
    stream = TokenStream(prefixes)
    out, rows = np.empty((ROWS, LENGTH), dtype), np.arange(ROWS)

    def batch() -> None:
        starts = chooser.integers(0, stream.num_tokens - LENGTH, ROWS)
        stream.gather(starts, out, rows)

    return batch


def run_of(prefixes: Sequence[Path], steps: int) -> TrainingData:
    """What the trainer reads from: each shard a corpus, mixed."""
    model = {"n_layers": 1, "d_model": 64, "n_heads": 1, "n_kv_heads": 1, "d_ff": 64}
    step_tokens = ROWS * SEQ_LEN
    settings: dict[str, object] = {
        "model": model,
        "seq_len": SEQ_LEN,
        "global_batch_tokens": step_tokens,
        "micro_batch_size": ROWS,
    }
    settings |= {
        "max_tokens": steps * step_tokens,
        "checkpoint": {"every_tokens": step_tokens},
        "evaluation": {"every_tokens": step_tokens},
    }
    corpora = [
        CorpusShards(name=f"corpus{number}", weight=1 + number, train=[prefix])
        for number, prefix in enumerate(prefixes)
    ]
    data = DataConfig(
        tokenizer=Path(), tokenizer_sha256="", vocab_size=VOCAB, bot_id=0, eot_id=1, corpora=corpora
    )
    return TrainingData(data, TrainingConfig.model_validate(settings), Path())


def training(prefixes: Sequence[Path]) -> Batch:
    data, steps = run_of(prefixes, 1_000_000), iter(range(1_000_000))
    return lambda: data.batch(next(steps), 0, 1)


def numpy_memmap(path: Path, chooser: np.random.Generator) -> Batch:
    tokens, out = np.memmap(path, np.uint16, mode="r"), np.empty((ROWS, LENGTH), np.int64)

    def batch() -> None:
        for row, start in enumerate(chooser.integers(0, len(tokens) - LENGTH, ROWS)):
            out[row] = tokens[start : start + LENGTH]

    return batch


def nanogpt(path: Path) -> Batch:
    import torch

    def batch() -> object:
        data = np.memmap(path, dtype=np.uint16, mode="r")
        ix = torch.randint(len(data) - SEQ_LEN, (ROWS,))
        x = torch.stack([torch.from_numpy(data[i : i + SEQ_LEN].astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + SEQ_LEN].astype(np.int64)) for i in ix])
        return x, y

    return batch


def data_loader(path: Path) -> Batch:
    import torch

    class Windows(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __init__(self) -> None:
            self.tokens = np.memmap(path, np.uint16, mode="r")

        def __len__(self) -> int:
            return len(self.tokens) // LENGTH

        def __getitem__(self, number: int) -> torch.Tensor:
            return torch.from_numpy(self.tokens[number * LENGTH : (number + 1) * LENGTH].astype(np.int64))

    windows = Windows()
    chosen = torch.utils.data.RandomSampler(windows, replacement=True, num_samples=1 << 30)
    batches = iter(torch.utils.data.DataLoader(windows, ROWS, sampler=chosen, num_workers=0))
    return lambda: next(batches)


def datatrove(directory: Path, prefixes: Sequence[Path], chooser: np.random.Generator) -> Batch:
    import torch
    from datatrove.utils.dataset import DatatroveFolderDataset

    directory.mkdir()
    for prefix in prefixes:
        os.link(bin_path(prefix), directory / f"{prefix.name}.ds")
    windows = DatatroveFolderDataset(str(directory), SEQ_LEN, token_size=2)
    return lambda: torch.stack(
        [windows[number]["input_ids"] for number in chooser.integers(0, len(windows), ROWS).tolist()]
    )


def hf_datasets(directory: Path, path: Path, chooser: np.random.Generator) -> Batch:
    import datasets
    import pyarrow as pa

    tokens = np.fromfile(path, np.uint16)
    tokens = tokens[: len(tokens) // LENGTH * LENGTH]
    datasets.disable_progress_bars()
    table = pa.table({"input_ids": pa.FixedSizeListArray.from_arrays(pa.array(tokens), LENGTH)})
    datasets.Dataset(table).save_to_disk(str(directory))
    windows = datasets.load_from_disk(str(directory)).with_format("numpy")
    return lambda: windows[chooser.integers(0, len(windows), ROWS)]["input_ids"].astype(np.int64)


def repeated(batch: Batch) -> Callable[[], None]:
    def call() -> None:
        for _ in range(BATCHES):
            batch()

    return call


def windows(directory: Path, prefixes: Sequence[Path]) -> Report:
    chooser, path = np.random.default_rng(2), directory / "train.bin"
    batches = {
        "ours": ours(prefixes, chooser, np.int64),
        "ours, uint16": ours(prefixes, chooser, np.uint16),
        "ours, in the order of a training run": training(prefixes),
        "numpy memmap": numpy_memmap(path, chooser),
    }
    if importable("torch"):
        batches |= {"nanoGPT get_batch": nanogpt(path), "torch DataLoader, no workers": data_loader(path)}
    if importable("datasets"):
        batches["datasets, numpy format"] = hf_datasets(directory / "hf", path, chooser)
    if importable("datatrove", "torch"):
        batches["datatrove folder dataset"] = datatrove(directory / "ds", prefixes, chooser)
    millions = ROWS * BATCHES * LENGTH / 1e6
    found = measure(
        {name: Contender(millions, repeated(batch)) for name, batch in batches.items()}, time.process_time
    )
    return {
        name: {"million_tokens_per_s": round(one["mb_per_s"], 1), "ratio": one["ratio"]}
        for name, one in found.items()
    }


def opening(directory: Path) -> Report:
    """Seconds for 10,000 shards, and the first batch of windows from them all."""
    first = directory / "00000"
    with ShardWriter(first, np.dtype(np.uint16)) as writer:
        writer.add_documents(np.arange(3000) % VOCAB, np.array([1000, 2000]))
    prefixes = [directory / f"{number:05d}" for number in range(SHARDS)]
    for prefix in prefixes[1:]:
        shutil.copyfile(bin_path(first), bin_path(prefix))
        shutil.copyfile(idx_path(first), idx_path(prefix))
    found = {"ours": _seconds(lambda: TokenStream(prefixes))}
    if importable("datatrove", "torch"):
        from datatrove.utils.dataset import DatatroveFolderDataset

        (directory / "ds").mkdir()
        for prefix in prefixes:
            os.link(bin_path(prefix), directory / "ds" / f"{prefix.name}.ds")
        found["datatrove folder dataset"] = _seconds(
            lambda: DatatroveFolderDataset(str(directory / "ds"), SEQ_LEN, token_size=2)
        )
    return {name: round(seconds, 3) for name, seconds in found.items()}


def resuming(prefixes: Sequence[Path]) -> Report:
    """Milliseconds from nothing to the batch at the beginning, the middle and the end of a long run."""
    steps = 10_000_000
    places = {"beginning": 0, "middle": steps // 2, "end": steps - 1}
    found = {
        name: _seconds(lambda step=step: run_of(prefixes, steps).batch(step, 0, 1))
        for name, step in places.items()
    }
    return {name: round(1000 * seconds, 3) for name, seconds in found.items()}


def _seconds(call: Callable[[], object], repeats: int = 7) -> float:
    """The median, after one call to warm up."""
    measured = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        call()
        measured.append(time.perf_counter() - started)
    return statistics.median(measured[1:])


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tokens = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 100_000_000
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        prefixes = write(directory, tokens)
        (directory / "many").mkdir()
        report = {
            "windows of 2,049 tokens": {"tokens": tokens, **windows(directory, prefixes)},
            "seconds to open 10,000 shards": opening(directory / "many"),
            "milliseconds to resume at the": resuming(prefixes),
        }
    record("shard_reading", report, ["numpy", "torch", "datasets", "datatrove"])


if __name__ == "__main__":
    main()
