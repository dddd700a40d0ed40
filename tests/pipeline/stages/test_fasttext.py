"""fastText's file format, its damages, and scores against the same definitions in plain Python. Real models
are in tests/peers/test_fasttext_reader.py.
"""

import math
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.stages.fasttext import read_model, scores
from pipeline.store.errors import PipelineError

WORDS, LABELS, DIM, BUCKET, MINN, MAXN = ("</s>", "the", "été", "a"), ("x", "y", "z"), 4, 50, 2, 3
SOFTMAX = 3
HEADER = 4 + 4 + 12 * 4 + 8


def entries() -> bytes:
    found = [(word, 0) for word in WORDS] + [(f"__label__{label}", 1) for label in LABELS]
    return b"".join(word.encode() + b"\0" + struct.pack("<qb", 9, kind) for word, kind in found)


def a_model(
    loss: int = SOFTMAX, model: int = 3, version: int = 12, quantized: bool = False, word_ngrams: int = 2
) -> tuple[bytes, np.ndarray, np.ndarray]:
    """The bytes of a model of random numbers, its input matrix and its output matrix."""
    drawn = np.random.default_rng(0)
    rows = len(WORDS) + BUCKET
    output = drawn.normal(size=(len(LABELS), DIM)).astype("<f4")
    if quantized:
        codes = drawn.integers(256, size=(rows, 2), dtype=np.uint8)
        norms, norm_codes = (
            drawn.uniform(1, 2, 256).astype("<f4"),
            drawn.integers(256, size=rows, dtype=np.uint8),
        )
        centroids = [drawn.normal(size=(256, width)).astype("<f4") for width in (3, 1)]
        matrix = np.hstack([table[codes[:, group]] for group, table in enumerate(centroids)])
        matrix = matrix * norms[norm_codes][:, None]
        stored = struct.pack("<?qqi", True, rows, DIM, codes.size) + codes.tobytes()
        stored += struct.pack("<4i", DIM, 2, 3, 1) + b"".join(table.tobytes() for table in centroids)
        stored += norm_codes.tobytes() + struct.pack("<4i", 1, 1, 1, 1) + norms.tobytes()
    else:
        matrix = drawn.normal(size=(rows, DIM)).astype("<f4")
        stored = struct.pack("<qq", rows, DIM) + matrix.tobytes()
    arguments = (DIM, 5, 5, 1, 5, word_ngrams, loss, model, BUCKET, MINN, MAXN, 100, 1e-4)
    vocabulary = struct.pack("<3i2q", len(WORDS) + len(LABELS), len(WORDS), len(LABELS), 99, -1)
    last = struct.pack("<?qq", False, len(LABELS), DIM) + output.tobytes()
    written = struct.pack("<2i12id", 793712314, version, *arguments) + vocabulary + entries()
    return written + struct.pack("<?", quantized) + stored + last, matrix, output


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    path = tmp_path / "model.bin"

    def written(content: bytes) -> Path:
        path.write_bytes(content)
        return path

    return written


def fnv(content: bytes) -> int:
    value = 2166136261
    for byte in content:
        value = (value ^ (byte if byte < 128 else byte + 0xFFFFFF00)) * 16777619 % 2**32
    return value


def rows_of(text: str, word_ngrams: int) -> list[int]:
    """The rows that fastText reads for a text."""
    for separator in "\n\r\t\v\f\0":
        text = text.replace(separator, " ")
    found, hashes = [], []
    for word in [*filter(None, text.split(" ")), "</s>"]:
        if word.startswith("__label__"):
            continue
        found += [WORDS.index(word)] if word in WORDS else []
        marked = f"<{word}>"
        for start in range(len(marked) if word != "</s>" else 0):
            for stop in range(start + MINN, min(start + MAXN, len(marked)) + 1):
                found.append(len(WORDS) + fnv(marked[start:stop].encode()) % BUCKET)
        value = fnv(word.encode())
        hashes.append(value - 2**32 if value >= 2**31 else value)
        if word == "</s>":
            break
    for first in range(len(hashes)):
        value = hashes[first] % 2**64
        for other in hashes[first + 1 : first + word_ngrams]:
            value = (value * 116049371 + other) % 2**64
            found.append(len(WORDS) + value % BUCKET)
    return found


def expected(text: str, loss: int, matrix: np.ndarray, output: np.ndarray, word_ngrams: int) -> np.ndarray:
    hidden = matrix[rows_of(text, word_ngrams)].astype(float).mean(axis=0)
    sums = output @ hidden
    if loss == 1:  # labels are equally frequent: the last two are joined first, the first is left of them
        right, left = 1 / (1 + np.exp(-sums)) + 1e-5, 1 / (1 + np.exp(sums)) + 1e-5
        return np.array([left[1], right[1] * right[0], right[1] * left[0]])
    if loss in (2, 4):  # each label by itself
        return 1 / (1 + np.exp(-sums)) + 1e-5
    return np.exp(sums - sums.max()) / np.exp(sums - sums.max()).sum() + 1e-5


def judged(path: Path, *texts: str | None) -> np.ndarray:
    return scores(read_model(path), pa.array(texts, pa.large_string()))


KNOWN = [*WORDS, "__label__x", "__label__q", "\0", "\n", " ", "🙂"]
TEXT = st.lists(st.sampled_from(KNOWN) | st.text(max_size=9))


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("loss", [1, 2, SOFTMAX, 4])
@given(words=st.lists(TEXT.map(" ".join), max_size=4), word_ngrams=st.integers(1, 4))
def test_scores_are_those_of_the_definition(
    tmp_path_factory: pytest.TempPathFactory, loss: int, quantized: bool, words: list[str], word_ngrams: int
) -> None:
    content, matrix, output = a_model(loss, quantized=quantized, word_ngrams=word_ngrams)
    path = tmp_path_factory.getbasetemp() / "drawn.bin"
    path.write_bytes(content)
    found = judged(path, *words)
    for text, row in zip(words, found, strict=True):
        # fastText's binary losses read the logistic function off a table of 512 entries over [-8, 8]
        tolerance = 1 / 64 if loss in (2, 4) else 1e-5
        assert np.abs(row - expected(text, loss, matrix, output, word_ngrams)).max() < tolerance


def test_labels_texts_and_nulls_keep_their_order(write: Callable[[bytes], Path]) -> None:
    path = write(a_model()[0])
    texts = pa.array(["skipped", "the", None, "été"], pa.string()).slice(1)
    assert read_model(path).labels == ("__label__x", "__label__y", "__label__z")
    assert (scores(read_model(path), texts) == judged(path, "the", "", "été")).all()
    assert judged(path).shape == (0, 3)


@pytest.mark.parametrize("quantized", [False, True])
@given(where=st.floats(0, 1), byte=st.integers(0, 255), cut=st.booleans())
def test_damage_is_one_sentence_or_another_valid_model(
    tmp_path_factory: pytest.TempPathFactory, quantized: bool, where: float, byte: int, cut: bool
) -> None:
    content = bytearray(a_model(loss=1, quantized=quantized)[0])
    # as often in the few bytes of sizes as in the many of numbers
    sizes = HEADER + 28 + len(entries()) + 40
    numbers = len(content) - sizes - 1
    at = math.floor(2 * where * sizes if where < 0.5 else sizes + (2 * where - 1) * numbers)
    path = tmp_path_factory.getbasetemp() / "damaged.bin"
    content[at] = byte
    path.write_bytes(content[:at] if cut else content)
    tracemalloc.start()
    try:
        found = judged(path, "the été unknown words", "")
        assert not cut and np.isfinite(found).all()
    except PipelineError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64e6


WRONG = {
    "is empty": (b"", "cannot be read as a fastText model: cannot mmap an empty file"),
    "is something else": (b"PK\3\4 is a zip file", "is not a fastText model: name the `.bin` or `.ftz` file"),
    "has no labels": (a_model(model=2)[0], "holds word vectors: name a fastText model that was trained with"),
    "has another loss": (a_model(loss=5)[0], "has version 12 and loss 5, which are not read: train it again"),
    "is of another version": (a_model(version=11)[0], "has version 11 and loss 3, which are not read"),
    "is cut": (a_model()[0][:-3], "is damaged, or cut off, in its output matrix: copy it again"),
    "goes on": (a_model()[0] + b"more", "is damaged, or cut off, in its end: copy it again"),
    "has no number": (a_model()[0][:-4] + struct.pack("<f", math.nan), "it gives a probability of nan"),
}


@pytest.mark.parametrize(("content", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_file_is_said(write: Callable[[bytes], Path], content: bytes, said: str) -> None:
    path = write(content)
    with pytest.raises(PipelineError, match="^" + str(path)) as raised:
        judged(path, "the")
    assert said in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"absent\.bin cannot be read as a fastText model: No such file"):
        read_model(tmp_path / "absent.bin")
