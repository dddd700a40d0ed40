"""Byte-level BPE gives back every text, never a control id from inside one, and the same vocabulary every time."""

from pydoc_data.topics import topics

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.stages import tokenizer as bpe

TEXTS = [text for _, text in sorted(topics.items())][:40]
PARAMS = bpe.TokenizerParams(vocab_size=600)
TRAINED = bpe.train([TEXTS], PARAMS)
ENCODER = bpe.Encoder(TRAINED.to_str(), PARAMS)


def encode(texts: list[str]) -> list[list[int]]:
    ids, lengths = ENCODER.encode(pa.array(texts, pa.large_string()))
    return [document.tolist() for document in np.split(ids, np.cumsum(lengths)[:-1])]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_any_text_comes_back_from_its_ids(texts: list[str]) -> None:
    for text, ids in zip(texts, encode(texts), strict=True):
        assert ids[0] == ENCODER.bot and ids[-1] == ENCODER.eot
        assert TRAINED.decode(ids[1:-1], skip_special_tokens=False) == text


def test_the_name_of_a_special_token_inside_a_text_is_plain_text() -> None:
    (ids,) = encode(["before [EOT] after [BOT][PAD][UNK]"])
    assert not {TRAINED.token_to_id(name) for name in PARAMS.specials} & set(ids[1:-1])


def test_training_twice_gives_the_same_files() -> None:
    again = bpe.train([TEXTS[:20], TEXTS[20:]], PARAMS)
    assert bpe.files(again, PARAMS) == bpe.files(TRAINED, PARAMS)


def test_a_vocabulary_that_the_text_cannot_support_is_refused_with_the_one_it_can() -> None:
    with pytest.raises(bpe.VocabularyError, match=r"vocab_size is 5000, but the text supports only \d+ entries: set it to \d+ or less"):
        bpe.train([["too little text to find five thousand pairs in"]], bpe.TokenizerParams(vocab_size=5000))


@pytest.mark.parametrize("pattern", ["gpt2", "llama3"])
def test_no_token_crosses_a_word(pattern: str) -> None:
    params = bpe.TokenizerParams(vocab_size=600, pattern=pattern)  # type: ignore[arg-type]
    trained = bpe.train([TEXTS], params)
    assert not [token for token in trained.get_vocab() if "Ġ" in token.strip("Ġ").replace("Ċ", "")]


def test_single_digits_are_single_tokens() -> None:
    params = bpe.TokenizerParams(vocab_size=600, single_digits=True)
    trained = bpe.train([[*TEXTS, "1234567890 " * 500]], params)
    assert trained.encode("2026").tokens == ["2", "0", "2", "6"]


def test_the_split_depends_on_the_id_alone_and_has_about_the_asked_share() -> None:
    ids = pa.array([f"{number:032x}" for number in range(20_000)])
    shares = bpe.share_of(ids, "validation")
    assert abs((shares < 0.02).mean() - 0.02) < 0.004
    assert (bpe.share_of(ids.slice(7, 1), "validation") == shares[7:8]).all()
    assert abs(np.corrcoef(shares, bpe.share_of(ids, "tokenizer"))[0, 1]) < 0.03
