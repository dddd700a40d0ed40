"""Training a 32k byte-level BPE vocabulary on 100 MB, each trainer in a process of its own: seconds, peak
memory, and whether the merges are equal.

`python performance/tokenizer_training.py` needs the sample corpora in ../shared/corpora; rustbpe is measured
where importable. Texts are cut as the pipeline cuts them. gigatoken knows one pattern, GPT-2's, and reads a
file.
"""

import argparse
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from harness.alone import here, in_turns
from harness.sidebyside import documents, importable, record
from tokenizers import Tokenizer, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from pipeline.stages import tokenizer as bpe
from pipeline.stages.tokenizer.train import LLAMA3_PATTERN, pre_tokenizer

NAMES = ("enwiki", "techdocs", "books")
PIECE = 10_000  # characters: whole books would all be cut to their first pages, and the sample be small
REPEATS = 3


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


def batches(path: Path) -> Iterator[pa.Array]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(1000, columns=["text"]):
            yield batch.column(0)


def by_groundwork(path: Path, vocab_size: int, pattern: str) -> str:
    return merges_of(bpe.train(batches(path), params(vocab_size, pattern)))


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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=float, default=100)
    options.add_argument("--vocab-size", type=int, default=32_000)
    options.add_argument("--one", nargs=3, metavar=("TRAINER", "SAMPLE", "PATTERN"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        trainer, sample, pattern = chosen.one
        here(lambda: TRAINERS[trainer](Path(sample), chosen.vocab_size, pattern))
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "sample.parquet"
        pq.write_table(
            pa.table({"text": pa.array(pieces(chosen.megabytes), pa.string())}),
            path,
            compression="zstd",
            row_group_size=1000,
        )

        def one(trainer: str, pattern: str) -> tuple[float, tuple[str, ...]]:
            return chosen.megabytes, (
                "--vocab-size",
                str(chosen.vocab_size),
                "--one",
                trainer,
                str(path),
                pattern,
            )

        contenders = {
            "groundwork, llama3 pattern": one("groundwork", "llama3"),
            "tokenizers, llama3 pattern": one("tokenizers", "llama3"),
            "groundwork, gpt2 pattern": one("groundwork", "gpt2"),
            "tokenizers, gpt2 pattern": one("tokenizers", "gpt2"),
            "gigatoken, gpt2 pattern": one("gigatoken", "gpt2"),
        }
        if importable("rustbpe"):
            contenders["rustbpe, llama3 pattern"] = one("rustbpe", "llama3")
        found = in_turns(__file__, contenders, REPEATS)
    equal = all(
        found[f"groundwork, {pattern} pattern"]["said"] == found[f"tokenizers, {pattern} pattern"]["said"]
        for pattern in ("llama3", "gpt2")
    )
    report = {
        "vocab_size": chosen.vocab_size,
        "training": found,
        "groundwork's merges equal those of tokenizers": equal,
    }
    record("tokenizer_training", report, ("tokenizers", "gigatoken", "rustbpe"))


if __name__ == "__main__":
    main()
