"""Byte-level BPE gives back every text, no control id from inside one, and the same ids however fast."""

import json
import tracemalloc
from collections import Counter
from pydoc_data.topics import topics

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.stages import bpe
from pipeline.stages.bpe.counts import CountedWords, added, count_words
from pipeline.stages.bpe.train import character_of_each_byte, pre_tokenizer
from pipeline.stages.held_out import share_of
from tests.corpora import CORPORA, needs_corpora

TEXTS = [text for _, text in sorted(topics.items())][:40]
PARAMS = bpe.TokenizerParams(vocab_size=600)
TRAINED = bpe.train([pa.array(TEXTS)], PARAMS)
FILES = bpe.files(TRAINED)
ENDS = bpe.boundaries(FILES["tokenizer.json"], FILES["tokenizer_config.json"])
ENCODER = bpe.Encoder(FILES["tokenizer.json"], ENDS, fast=True)


def encode(texts: list[str]) -> list[list[int]]:
    ids, lengths = ENCODER.encode(pa.array(texts, pa.large_string()))
    return [document.tolist() for document in np.split(ids, np.cumsum(lengths)[:-1])]


def test_a_document_begins_and_ends_with_the_tokens_of_these_names() -> None:
    (ids,) = encode(["text"])
    assert (TRAINED.id_to_token(ids[0]), TRAINED.id_to_token(ids[-1])) == ("[BOT]", "[EOT]")


@settings(deadline=None)  # the first call loads libraries
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_any_text_comes_back_from_its_ids(texts: list[str]) -> None:
    for text, ids in zip(texts, encode(texts), strict=True):
        assert ids[0] == ENDS.begin and ids[-1] == ENDS.end
        assert TRAINED.decode(ids[1:-1], skip_special_tokens=False) == text


def test_the_name_of_a_special_token_inside_a_text_is_plain_text() -> None:
    (ids,) = encode(["before [EOT] after [BOT][PAD][UNK]"])
    assert not {TRAINED.token_to_id(name) for name in bpe.SPECIALS.values()} & set(ids[1:-1])


def test_training_twice_gives_the_same_files() -> None:
    again = bpe.train([pa.array(TEXTS[:20]), pa.array(TEXTS[20:])], PARAMS)
    assert bpe.files(again) == bpe.files(TRAINED)


def trained_by_the_library(texts: list[str], params: bpe.TokenizerParams) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token=None, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizer(params)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=params.vocab_size,
        min_frequency=2,
        special_tokens=list(bpe.SPECIALS.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


PATTERNS: list[dict[str, object]] = [{}, {"single_digits": True}, {"pattern": "gpt2"}]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_the_vocabulary_is_the_one_that_the_library_trains(pattern: dict[str, object]) -> None:
    params = bpe.TokenizerParams.model_validate({"vocab_size": 900, **pattern})
    texts = [*TEXTS, "1234567890 ½ Ⅷ 三百 " * 20, "aaaaaa aaaaaaa\r\n\n  x\u3000" * 20]
    trained = bpe.train([pa.array(texts)], params)
    assert trained.to_str(pretty=True) == trained_by_the_library(texts, params).to_str(pretty=True)


@settings(deadline=None)
@given(st.sampled_from(PATTERNS), st.lists(st.text("ab", max_size=12), max_size=20), st.integers(261, 300))
def test_ties_and_repeated_letters_are_merged_in_the_order_of_the_library(
    pattern: dict[str, object], texts: list[str], vocab_size: int
) -> None:
    params = bpe.TokenizerParams.model_validate({"vocab_size": vocab_size, **pattern})
    theirs = trained_by_the_library(texts, params)
    if theirs.get_vocab_size() < vocab_size:
        with pytest.raises(bpe.TokenizerError, match=f"supports only {theirs.get_vocab_size()} entries"):
            bpe.train([pa.array(texts, pa.string())], params)
    else:
        assert bpe.train([pa.array(texts, pa.string())], params).to_str() == theirs.to_str()


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@settings(deadline=None)
@given(
    text=st.text(
        st.one_of(
            st.sampled_from("'sS\u017ftTrReEvVlLmMdDkK  \t\n\r\u00a0\u2028.,!_12३Ⅷ²½中é\u0301\u200d\x1f\x85"),
            st.characters(exclude_categories=["Cs"]),
        )
    )
)
@example(text="'\u017f it'\u017f '\u017fo")
def test_text_is_cut_into_the_words_of_the_library(pattern: dict[str, object], text: str) -> None:
    params = bpe.TokenizerParams.model_validate(pattern)
    characters = {shown: byte for byte, shown in enumerate(character_of_each_byte())}
    texts = [text, f"{text}uninterrupted {text}Incomprehensibilities", text]
    cut = [word for text in texts if text for word, _ in pre_tokenizer(params).pre_tokenize_str(text)]
    theirs = Counter(bytes(characters[character] for character in word) for word in cut)
    words = count_words([pa.array(texts)], params.pattern, params.single_digits)
    ours = {
        words.data[start:end].tobytes(): int(count)
        for start, end, count in zip(words.starts, words.starts[1:], words.counts, strict=False)
    }
    assert ours == theirs


def test_more_words_than_the_hash_table_begins_with_are_counted() -> None:
    texts = pa.array([" ".join(["", *map(str, range(start, 200_000, 2))]) for start in (0, 1)])
    words = count_words([texts, texts], "gpt2", single_digits=False)
    assert words.counts.tolist() == [2] * 200_000
    assert all(map(np.array_equal, added([count_words([texts], "gpt2", single_digits=False)] * 2), words))


@settings(deadline=None)
@given(st.lists(st.lists(st.text("ab \né中", max_size=9), max_size=5), max_size=5), st.sampled_from(PATTERNS))
def test_words_that_were_counted_apart_add_up_to_those_of_one_pass_in_its_order(
    texts: list[list[str]], pattern: dict[str, object]
) -> None:
    params = bpe.TokenizerParams.model_validate(pattern)
    columns = [pa.array(column, pa.string()) for column in texts]
    together = count_words(columns, params.pattern, params.single_digits)
    apart = [count_words([column], params.pattern, params.single_digits) for column in columns]
    stored = [CountedWords.of_batch(words.batch()) for words in apart]
    for found in (added(apart), added(stored), added([added(apart[:2]), *apart[2:]])):
        assert all(map(np.array_equal, found, together))


def test_long_tokens_take_no_more_memory_than_their_bytes() -> None:
    word = "abcdefghijklmnopqrstuvwxyz" * 30
    texts = pa.array([" ".join(f"{7919**4 * number}{word}" for number in range(1, 40))] * 2)
    params = bpe.TokenizerParams(vocab_size=600, pattern="gpt2")
    bpe.train([texts], params)  # compiles
    tracemalloc.start()
    bpe.train([texts], params)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.slow
def test_no_character_beyond_the_searched_planes_is_more_than_a_sign() -> None:
    text = "".join(map(chr, range(0x40000, 0x110000)))
    for first in range(0, len(text), 0x800):
        block = text[first : first + 0x800]
        assert len(pre_tokenizer(PARAMS).pre_tokenize_str(block)) == 1


def test_a_vocabulary_that_the_text_cannot_support_is_refused_with_the_one_it_can() -> None:
    with pytest.raises(
        bpe.TokenizerError,
        match=r"vocab_size is 5000, but the text supports only \d+ entries: set it to \d+ or less",
    ):
        text = pa.array(["too little text to find five thousand pairs in"])
        bpe.train([text], bpe.TokenizerParams(vocab_size=5000))


FAST = [("gpt2", False), ("llama3", False), ("llama3", True)]


@pytest.fixture(scope="module", params=FAST)
def both(request: pytest.FixtureRequest) -> tuple[bpe.Encoder, bpe.Encoder]:
    """The fast encoder and `tokenizers`, with a vocabulary in which digits, spaces and the names of special
    tokens were worth merging.
    """
    pattern, digits = request.param
    params = bpe.TokenizerParams.model_validate(
        {"vocab_size": 900, "pattern": pattern, "single_digits": digits}
    )
    text = "EOT\n EOT\nEOT \t EOT  12  345   6789\r\n\r\n 1 ''s 'S \u00a0\u3000 " * 50
    content = json.loads(bpe.train([pa.array([*TEXTS, text])], params).to_str())
    last = {"content": "EOT", "id": content["model"]["vocab"]["EOT"]}
    content["added_tokens"].append(content["added_tokens"][-1] | last)
    named = json.dumps(content)
    ends = bpe.boundaries(named, json.dumps({"bos_token": "[BOT]", "eos_token": "EOT"}))
    assert bpe.unsupported(named) is None
    fast, slow = (bpe.Encoder(named, ends, fast) for fast in (True, False))
    return fast, slow


def assert_same(both: tuple[bpe.Encoder, bpe.Encoder], texts: list[str]) -> None:
    """Of a batch by the fast encoder, of one document at a time by the other."""
    fast, slow = both
    ids, lengths = fast.encode(pa.array(texts, pa.large_string()))
    for text, start, length in zip(texts, np.cumsum(lengths) - lengths, lengths, strict=True):
        alone, _ = slow.encode(pa.array([text], pa.large_string()))
        assert ids[start : start + length].tolist() == alone.tolist(), repr(text[:200])


VISIBLE = "'s 'LL I'd've 1 12 123 1234 ² Ⅷ ১ a Zz é ß 中文 😀 . ... -- _ <| |> EOT [BOT] [PAD]"
PIECES = [*VISIBLE.split(), *" \t\n\x00\u00a0\u3000\u200b\u200d\ufeff\U0010ffff", "  ", "\r\n", "e\u0301"]


@settings(deadline=None)
@given(
    texts=st.lists(
        st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=30).map("".join),
        min_size=1,
        max_size=5,
    )
)
def test_the_fast_encoder_gives_the_ids_of_tokenizers(
    both: tuple[bpe.Encoder, bpe.Encoder], texts: list[str]
) -> None:
    assert_same(both, texts)


@needs_corpora
def test_the_fast_encoder_gives_the_ids_of_tokenizers_on_naughty_strings(
    both: tuple[bpe.Encoder, bpe.Encoder],
) -> None:
    assert_same(both, (CORPORA / "bad_inputs" / "blns" / "blns.txt").read_text(encoding="utf-8").split("\n"))


@pytest.mark.slow
@needs_corpora
@pytest.mark.parametrize("both", FAST, indirect=True)
@pytest.mark.parametrize(
    "name",
    ["books", "enwiki", "techdocs", "labelled/neardup_articles_2500", "labelled/pii_presidio_synth_v2"],
)
def test_the_fast_encoder_gives_the_ids_of_tokenizers_on_all_sample_corpora(
    both: tuple[bpe.Encoder, bpe.Encoder], name: str
) -> None:
    for batch in FilesSource("sample", FilesConfig(paths=(str(CORPORA / f"{name}.jsonl.zst"),))).read_all([]):
        (fast, lengths), (slow, _) = (encoder.encode(batch.column("text")) for encoder in both)
        stops = np.cumsum(lengths)
        wrong = np.searchsorted(stops, np.flatnonzero(fast != slow)[:1], side="right")
        assert not wrong.size, batch.column("id")[int(wrong[0])]


def test_a_tokenizer_that_the_fast_encoder_would_get_wrong_silently_is_left_to_tokenizers() -> None:
    digits = json.loads(FILES["tokenizer.json"])
    digits["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Digits", "individual_digits": True})
    normalized = json.loads(FILES["tokenizer.json"]) | {"normalizer": {"type": "NFC"}}
    added = json.loads(FILES["tokenizer.json"])
    added["added_tokens"][0]["special"] = False
    for settings_, reason in ((digits, "pre-tokenizer"), (normalized, "NFC"), (added, "not special")):
        assert reason in str(bpe.unsupported(json.dumps(settings_)))
    assert bpe.unsupported(FILES["tokenizer.json"]) is None


def test_single_digits_are_for_the_pattern_of_llama_3() -> None:
    with pytest.raises(ValueError, match="single_digits needs pattern llama3"):
        bpe.TokenizerParams(pattern="gpt2", single_digits=True)


def test_a_part_is_checked_at_its_start_and_throughout_at_little_cost() -> None:
    checked = bpe.Checked()
    batches = [
        (pa.array([f"{batch}-{row}" for row in range(500)]), np.full(500, 3_000)) for batch in range(200)
    ]
    chosen = [checked.choose(ids, sizes) for ids, sizes in batches]
    assert chosen[0][0] == 0
    spent = 3_000 * sum(map(len, chosen))
    assert 0.8 < spent / (200 * 500 * 3_000 / 1000) < 1.1
    assert sum(map(len, chosen[100:])) > 30


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=8), st.integers(1, 10**9))
def test_the_sample_is_shared_in_proportion_and_no_corpus_is_left_out(sizes: list[int], total: int) -> None:
    found = bpe.budgets({str(number): size for number, size in enumerate(sizes)}, total)
    assert sum(found.values()) <= total
    least = int(0.1 * total / len(sizes))
    assert all(min(size, least) <= found[str(number)] <= size for number, size in enumerate(sizes))
    if sum(sizes) <= total:
        assert list(found.values()) == sizes


def test_the_split_depends_on_the_id_alone_and_has_about_the_asked_share() -> None:
    ids = pa.array([f"{number:032x}" for number in range(20_000)])
    shares = share_of(ids, "validation")
    assert abs((shares < 0.02).mean() - 0.02) < 0.004
    assert (share_of(ids.slice(7, 1), "validation") == shares[7:8]).all()
    assert abs(np.corrcoef(shares, share_of(ids, "tokenizer"))[0, 1]) < 0.03


def test_tokens_for_conversations_are_reserved_within_the_vocabulary() -> None:
    made = bpe.files(bpe.train([pa.array(TEXTS)], bpe.TokenizerParams(vocab_size=600, chat=True)))
    reader = Tokenizer.from_str(made["tokenizer.json"])
    assert reader.get_vocab_size() == 600
    names = [*bpe.SPECIALS.values(), *bpe.CONTROL.values(), "[SPARE_0]", "[SPARE_1]", "[SPARE_2]"]
    assert [reader.token_to_id(name) for name in names] == list(range(12))
    ends = bpe.boundaries(made["tokenizer.json"], made["tokenizer_config.json"])
    assert ends.control == {"system": 4, "user": 5, "assistant": 6, "tool": 7, "end": 8}
    assert json.loads(made["tokenizer_config.json"])["chat_template"] == made["chat_template.jinja"]
    assert ENDS.control == {} and "chat_template.jinja" not in FILES
    with pytest.raises(ValueError, match="chat needs a vocab_size of at least 268"):
        bpe.TokenizerParams(vocab_size=267, chat=True)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
@settings(deadline=None)
def test_appended_tokens_leave_the_ids_of_every_text_as_they_were(texts: list[str]) -> None:
    made = bpe.with_chat(FILES)
    ends = bpe.boundaries(made["tokenizer.json"], made["tokenizer_config.json"])
    assert list(ends.control.values()) == list(range(600, 605))
    assert (ends.begin, ends.end) == (ENDS.begin, ENDS.end) and bpe.with_chat(made) == made
    column = pa.array([*texts, *bpe.CONTROL.values()], pa.large_string())
    for fast in (True, False):
        ids, lengths = bpe.Encoder(made["tokenizer.json"], ends, fast).encode(column)
        assert ids.tolist() == ENCODER.encode(column)[0].tolist()
        assert lengths.tolist() == ENCODER.encode(column)[1].tolist()
