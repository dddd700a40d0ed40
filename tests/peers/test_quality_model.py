"""Our quality model beside fastText, which reads the file, and is trained on the same texts."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from pipeline.stages.quality_model import HELD_OUT, auc, train
from tests.corpora import CORPORA, needs_corpora

pytest.importorskip("fasttext", reason="fasttext is not installed: it is the reference here")

from tests.peers.test_fasttext_reader import LABELS, check, fasttext, predicted

pytestmark = [pytest.mark.slow, needs_corpora]

OF_EACH, CHARACTERS = 1000, 200


def pieces(corpus: str) -> list[str]:
    """Beginnings and middles of real documents, as lines."""
    found: list[str] = []
    with zstandard.open(CORPORA / f"{corpus}.jsonl.zst") as packed:
        for line in io.TextIOWrapper(packed, encoding="utf-8"):
            text = " ".join(json.loads(line)["text"].split())
            found += (
                text[at : at + CHARACTERS]
                for at in range(0, min(len(text), 100 * CHARACTERS), CHARACTERS * 4)
            )
            if len(found) >= OF_EACH:
                return found[:OF_EACH]
    return found


@pytest.mark.parametrize("positive", LABELS)
def test_it_ranks_texts_as_well_as_fasttext_that_was_trained_on_the_same(
    positive: str, tmp_path: Path
) -> None:
    names = (positive, *(name for name in LABELS if name != positive))
    texts = [piece for name in names for piece in pieces(name)]
    corpus = np.repeat(np.arange(len(names)), OF_EACH)
    share = np.random.default_rng(0).random(len(texts))
    model, facts = train(
        pa.array(texts, pa.large_string()), corpus=corpus, positive=corpus == 0, share=share, names=names
    )
    (tmp_path / "ours.bin").write_bytes(model)
    check(tmp_path / "ours.bin", texts[::50])
    lines = (f"__label__{int(corpus[i] == 0)} {texts[i]}\n" for i in np.flatnonzero(share >= 2 * HELD_OUT))
    (tmp_path / "train.txt").write_text("".join(lines), encoding="utf-8")
    settings = {
        "wordNgrams": 2,
        "dim": 10,
        "bucket": 1 << 20,
        "epoch": 25,
        "lr": 0.5,
        "thread": 1,
        "verbose": 0,
    }
    peer = fasttext.train_supervised(str(tmp_path / "train.txt"), **settings)
    test = np.flatnonzero(share < HELD_OUT)
    theirs = np.array([predicted(peer, texts[i]).get("__label__1", 0) for i in test])
    expected = auc(theirs[corpus[test] == 0], theirs[corpus[test] != 0])
    print(positive, "ours", facts["AUC"], "fastText", expected)
    assert facts["AUC"] >= expected - 0.002
