"""Training a 32k byte-level BPE vocabulary, each trainer in a process of its own: seconds, peak memory, and
whether the merges are equal. First on 100 MB with one core, then from a store on 300 MB with one worker and
more, each beside `tokenizers`.

`python performance/tokenizer_training.py` needs the sample corpora in ../shared/corpora; rustbpe is measured
where importable. Texts are cut as the pipeline cuts them. gigatoken knows one pattern, GPT-2's, and reads a
file. In the larger text one word in 25 has two more letters, so that as many words are new as in text of its
size that does not repeat. `--record` keeps the figures.
"""

import argparse
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from harness import kept_corpus
from harness.alone import here, in_turns
from harness.sidebyside import documents, importable, record
from tokenizers import Tokenizer, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from pipeline.stages import bpe
from pipeline.stages.bpe.train import LLAMA3_PATTERN, pre_tokenizer
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import tokenizer

NAMES = ("enwiki", "techdocs", "books")
PIECE = 10_000  # characters: whole books would all be cut to their first pages, and the sample be small
REPEATS = 3
STORE = "groundwork, from a store with workers: "
NEW_WORD_ONE_IN = 25
PART_BYTES = 128_000_000  # the default of a recipe


def pieces(megabytes: float) -> Iterator[str]:
    size = 0
    while True:
        for name in NAMES:
            for row in documents(name):
                for start in range(0, len(row["text"]), PIECE):
                    if size >= megabytes * 1e6:
                        return
                    piece = row["text"][start : start + PIECE]
                    size += len(piece.encode())
                    yield piece


def varied(megabytes: float) -> Iterator[str]:
    """As `pieces`, with new words."""
    chance = random.Random(1)
    for piece in pieces(megabytes):
        words = piece.split(" ")
        for place in range(0, len(words), NEW_WORD_ONE_IN):
            words[place] += "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=2))
        yield " ".join(words)[:PIECE]


def batches(path: Path) -> Iterator[pa.Array]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(1000, columns=["text"]):
            yield batch.column(0)


def by_groundwork(path: Path, vocab_size: int, pattern: str) -> str:
    return merges_of(bpe.train(batches(path), params(vocab_size, pattern)))


def from_store(path: Path, vocab_size: int, workers: int) -> str:
    """The stage, from the Parquet parts beside `path`, with worker processes that have to start."""
    store, engine = Store(path.with_name("store")), LocalEngine(workers)
    settings = params(vocab_size, "llama3")
    # a name of its own, or the tokenizer of the run before would be found
    version = tokenizer(store, engine, f"run-{os.getpid()}", [kept_corpus.NAME], settings, 0.0)
    engine.close()
    return merges_of(Tokenizer.from_file(str(version.path / "tokenizer.json")))


def by_tokenizers(path: Path, vocab_size: int, pattern: str) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(params(vocab_size, pattern))
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(bpe.SPECIALS.values()),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((batch.to_pylist() for batch in batches(path)), trainer)
    return merges_of(tokenizer)


def params(vocab_size: int, pattern: str) -> bpe.TokenizerParams:
    return bpe.TokenizerParams.model_validate({"vocab_size": vocab_size, "pattern": pattern})


def merges_of(trained: Tokenizer) -> str:
    shown = {character: byte for byte, character in _shown().items()}
    merges = json.loads(trained.to_str())["model"]["merges"]
    return fingerprint(
        [tuple(bytes(shown[character] for character in side) for side in pair) for pair in merges]
    )


def by_gigatoken(path: Path, vocab_size: int, pattern: str) -> str:
    from gigatoken import ParquetFileSource, train_bpe

    _, merges = train_bpe(ParquetFileSource([path]), vocab_size, list(bpe.SPECIALS.values()))
    return fingerprint(merges)


def by_rustbpe(path: Path, vocab_size: int, pattern: str) -> str:
    import rustbpe

    trainer = rustbpe.Tokenizer()
    texts = (text for batch in batches(path) for text in batch.to_pylist())
    trainer.train_from_iterator(texts, vocab_size - len(list(bpe.SPECIALS.values())), pattern=LLAMA3_PATTERN)
    return fingerprint([(token, b"") for token, _ in trainer.get_mergeable_ranks()])


TRAINERS: dict[str, Callable[[Path, int, str], str]] = {
    "groundwork": by_groundwork,
    "tokenizers": by_tokenizers,
    "gigatoken": by_gigatoken,
    "rustbpe": by_rustbpe,
}


def fingerprint(merges: list[Any]) -> str:
    return hashlib.sha256(repr([tuple(pair) for pair in merges]).encode()).hexdigest()[:16]


def _shown() -> dict[int, str]:
    """How byte-level BPE writes each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {byte: chr(byte) for byte in printable}
    shown |= {
        byte: chr(256 + number)
        for number, byte in enumerate(byte for byte in range(256) if byte not in printable)
    }
    assert set(shown.values()) == set(ByteLevel.alphabet())
    return shown


def in_text(texts: Iterator[str], directory: Path) -> Path:
    path = directory / "sample.parquet"
    column = pa.array(texts, pa.string())
    pq.write_table(pa.table({"text": column}), path, compression="zstd", row_group_size=1000)
    return path


def on_one_core(megabytes: float, vocab_size: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        path = in_text(pieces(megabytes), Path(directory))
        contenders = {
            "groundwork, llama3 pattern": ("groundwork", "llama3"),
            "tokenizers, llama3 pattern": ("tokenizers", "llama3"),
            "groundwork, gpt2 pattern": ("groundwork", "gpt2"),
            "tokenizers, gpt2 pattern": ("tokenizers", "gpt2"),
            "gigatoken, gpt2 pattern": ("gigatoken", "gpt2"),
        }
        if importable("rustbpe"):
            contenders["rustbpe, llama3 pattern"] = ("rustbpe", "llama3")
        return turns(path, megabytes, contenders, vocab_size, repeats)


def on_more_cores(
    megabytes: float, workers: tuple[int, ...], vocab_size: int, repeats: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        path = in_text(varied(megabytes), Path(directory))
        texts = (text for batch in batches(path) for text in batch.to_pylist())
        kept_corpus.keep_all(Store(path.with_name("store")), texts, PART_BYTES)
        contenders = {f"{STORE}{number}": (f"{STORE}{number}", "llama3") for number in workers}
        contenders["tokenizers, on all cores"] = ("tokenizers", "llama3")
        return turns(path, megabytes, contenders, vocab_size, repeats)


def turns(
    path: Path, megabytes: float, contenders: dict[str, tuple[str, str]], vocab_size: int, repeats: int
) -> dict[str, Any]:
    commands = {
        name: (megabytes, ("--vocab-size", str(vocab_size), "--one", trainer, str(path), pattern))
        for name, (trainer, pattern) in contenders.items()
    }
    return in_turns(__file__, commands, repeats)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=float, default=100)
    options.add_argument("--more-megabytes", type=float, default=300)
    options.add_argument("--workers", type=int, nargs="+", default=(1, 2))
    options.add_argument("--vocab-size", type=int, default=32_000)
    options.add_argument("--repeats", type=int, default=REPEATS)
    options.add_argument("--record", action="store_true")
    options.add_argument("--one", nargs=3, metavar=("TRAINER", "SAMPLE", "PATTERN"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        trainer, sample, pattern = chosen.one
        path = Path(sample)
        if trainer.startswith(STORE):
            here(lambda: from_store(path, chosen.vocab_size, int(trainer.removeprefix(STORE))))
        else:
            here(lambda: TRAINERS[trainer](path, chosen.vocab_size, pattern))
        return
    size, repeats = chosen.vocab_size, chosen.repeats
    found = on_one_core(chosen.megabytes, size, repeats) if chosen.megabytes else {}
    larger = on_more_cores(chosen.more_megabytes, chosen.workers, size, repeats)
    said = {name: facts["said"] for name, facts in {**found, **larger}.items() if "rustbpe" not in name}
    patterns = [
        {said[name] for name in found if pattern in name and name in said} for pattern in ("llama3", "gpt2")
    ]
    equal = all(len(merges) <= 1 for merges in [*patterns, {said[name] for name in larger}])
    report = {
        "vocab_size": size,
        "training": found,
        "training from a store": larger,
        "groundwork's merges equal those of tokenizers": equal,
    }
    if chosen.record:
        record("tokenizer_training", report, ("tokenizers", "gigatoken", "rustbpe"))
    else:
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
