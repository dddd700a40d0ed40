"""How much text a vocabulary needs: tokens per byte of held-out documents, by the size of the sample that the
tokenizer was trained on.

`python performance/tokenizer_sample.py` needs the sample corpora in ../shared/corpora, which have 74 MB.
Every fiftieth document is held out; the others are cut into pieces, which each sample takes in one
random order.
"""

import random
from collections.abc import Iterator

import pyarrow as pa
from harness.sidebyside import documents, record, size_of

from pipeline.stages import bpe

NAMES = ("enwiki", "techdocs", "books")
MEGABYTES = (5, 15, 30, 60)
VOCABULARIES = (8192, 32_000)
PIECE = 10_000  # characters: the most that training reads of a document
HELD_OUT_ONE_IN = 50


def main() -> None:
    held_out, pieces = [], []
    for name in NAMES:
        for number, document in enumerate(documents(name)):
            if number % HELD_OUT_ONE_IN == 0:
                held_out.append(document["text"])
            else:
                text = document["text"]
                pieces += [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    random.Random(1).shuffle(pieces)
    report = {
        "held_out_mb": round(size_of(held_out), 2),
        "held_out_documents": len(held_out),
        "tokens_per_byte": {
            str(vocab_size): {
                str(megabytes): round(tokens_per_byte(pieces, megabytes, vocab_size, held_out), 4)
                for megabytes in MEGABYTES
            }
            for vocab_size in VOCABULARIES
        },
    }
    record("tokenizer_sample", report, ("gigatoken",))


def tokens_per_byte(pieces: list[str], megabytes: float, vocab_size: int, held_out: list[str]) -> float:
    params = bpe.TokenizerParams(vocab_size=vocab_size)
    trained = bpe.files(bpe.train(first(pieces, megabytes), params))
    ends = bpe.boundaries(trained["tokenizer.json"], trained["tokenizer_config.json"])
    encoder = bpe.Encoder(trained["tokenizer.json"], ends, fast=True)
    ids, _ = encoder.encode(pa.array(held_out, pa.large_string()))
    return (len(ids) - 2 * len(held_out)) / (1e6 * size_of(held_out))


def first(pieces: list[str], megabytes: float) -> Iterator[pa.Array]:
    """The first pieces that make so much text, as columns."""
    size = start = 0
    for end, piece in enumerate(pieces, 1):
        size += len(piece.encode())
        if size >= megabytes * 1e6 or end - start == 1000:
            yield pa.array(pieces[start:end])
            start = end
        if size >= megabytes * 1e6:
            return


if __name__ == "__main__":
    main()
