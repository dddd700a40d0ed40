"""What a document is reduced to: its exact hash, its shingles and their MinHash."""

import hashlib
import sys
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.stages.dedup import DedupParams, shingle_sets, signature_schema, signatures
from pipeline.stages.dedup.normalize import MARK, NFC_UNSURE, SPACE, WORD, characters
from pipeline.stages.dedup.params import MAX_CHARS
from pipeline.stages.hashing import murmur128
from pipeline.stages.text import CODE_POINTS
from tests.rows import documents

PARAMS = DedupParams()
# Letters that fold to more bytes or characters, that compose, that fall out of \w, and white space that is
# not ASCII.
ODD_CHARACTERS = (
    "aAbZ09_ \t\n.,'éÉe\u0301ßẞİI\u0131\u017fΐΰﬃŉK\u212a\u0345\u0390中文字한"
    "\u1112\u1161\u11abक\u093f\u0928\U0001d518𐐀😀\ufe0f\u200d\u00a0\u3000\x00ⓐⒶ"
    "ไท่ສາ\u0e33ខ្មរမြན\u0f92"
)


def normal(text: str) -> str:
    """In NFC, casefolded, without what nobody sees: soft hyphens, characters without width, directions."""
    folded = unicodedata.normalize("NFC", text).strip().casefold()
    return "".join(c for c in folded if unicodedata.category(c) != "Cf" or 0x600 <= ord(c) < 0x606)


def words_of(text: str) -> list[str]:
    """`[^\\W_]+` of the NFC casefolded text, where a combining mark continues a word, and a letter of a
    script without spaces begins one; one character at a time, to compare the kernel with.
    """
    words, word = [], ""
    for character in normal(text):
        inside = character.isalnum() or (word and unicodedata.category(character)[0] == "M")
        name = unicodedata.name(character, "").partition(" ")[0]
        alone = character.isalnum() and name in ("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
        if (not inside or alone) and word:
            words.append(word)
            word = ""
        word = word + character if inside else ""
    return [*words, word] if word else words


def shingles_of(text: str, ngram: int) -> set[str]:
    words = words_of(text)
    if len(words) >= ngram:
        return {"\n".join(words[i : i + ngram]) for i in range(len(words) - ngram + 1)}
    whole = normal(text)
    return {"whole text:" + whole} if whole else set()


def rows_of(sets) -> list[set[int]]:
    return [
        set(sets.hashes[start:end].tolist())
        for start, end in zip(sets.offsets[:-1], sets.offsets[1:], strict=True)
    ]


def exact_of(*texts: str) -> list[bytes]:
    return signatures(documents(*texts), PARAMS).column("exact").to_pylist()


def test_the_minhash_equals_datasketchs_affine32_of_the_same_shingle_hashes():
    texts = [
        "The quick brown fox jumps over the lazy dog and runs away. " * k + f"Ending number {k} of them all."
        for k in range(1, 9)
    ]
    params = DedupParams(bands=21, rows=5)
    minhash = signatures(documents(*texts), params).column("minhash").to_pylist()
    for ours, hashes in zip(minhash, rows_of(shingle_sets(documents(*texts), params)), strict=True):
        reference = MinHash(num_perm=params.num_perm, seed=1, scheme="affine32", hashfunc=int)
        reference.update_batch([value >> 32 for value in hashes])
        assert ours == reference.hashvalues.tolist()


def test_the_exact_hash_is_murmurhash3_of_the_normalized_text():
    assert exact_of(" Hello\n")[0].hex() == "029bbd41b3a7d8cb191dae486a901e5b"
    fox = b"The quick brown fox jumps over the lazy dog"
    blocks = np.frombuffer(fox.ljust(64, b"\0"), np.uint64).copy()
    assert [f"{int(half):016x}" for half in murmur128(blocks, len(fox))] == [
        "e34bbc7bbc071b6c",
        "7a433ca9c49a9347",
    ]


@settings(deadline=None, max_examples=80)
@given(st.lists(st.text(alphabet=ODD_CHARACTERS, max_size=60), min_size=1, max_size=8), st.integers(1, 6))
def test_shingles_of_any_text_are_equal_exactly_where_its_word_ngrams_are(texts, ngram):
    ours = rows_of(shingle_sets(documents(*texts), DedupParams(ngram=ngram)))
    meant = [shingles_of(text, ngram) for text in texts]
    assert [len(row) for row in ours] == [len(row) for row in meant]
    for i in range(len(texts)):
        for j in range(i):
            assert len(ours[i] & ours[j]) == len(meant[i] & meant[j])


@settings(deadline=None, max_examples=80)
@given(st.lists(st.text(alphabet=ODD_CHARACTERS, max_size=20), min_size=2, max_size=12))
def test_exact_hashes_are_equal_exactly_where_the_normalized_texts_are(texts):
    normalized = [normal(text) for text in texts]
    hashes = exact_of(*texts)
    for i in range(len(texts)):
        for j in range(i):
            assert (hashes[i] == hashes[j]) == (normalized[i] == normalized[j])


@pytest.mark.parametrize("unseen", ["\u00ad", "\u200b", "\u200d", "\ufeff", "\u2060", "\u202a", "\u200f"])
def test_copies_that_differ_in_characters_that_nobody_sees_are_equal(unseen):
    text = "The hyphenation of this sentence was left in its words by a typesetter."
    other = unseen + text.replace("en", f"e{unseen}n") + unseen
    assert exact_of(text) == exact_of(other)
    first, second = rows_of(shingle_sets(documents(text, other), DedupParams()))
    assert first == second


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["é", "two", "3", "字"]), st.sampled_from(["", *"_*", "__", "**"])))
)
def test_emphasis_as_markdown_writes_it_changes_no_word(words):
    emphasized, plain = (" ".join(texts) for texts in ((m + w + m for w, m in words), (w for w, _ in words)))
    if len(words) >= 2:
        marked, bare = rows_of(shingle_sets(documents(emphasized, plain), DedupParams(ngram=2)))
        assert marked == bare


def test_every_character_is_compared_as_its_casefolded_form():
    upper = [character for character in map(chr, range(0x20000)) if character.casefold() != character]
    folded = [unicodedata.normalize("NFC", character).casefold() for character in upper]
    assert max(upper) > "\U00010000"
    assert exact_of(*upper) == exact_of(*folded)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(alphabet=ODD_CHARACTERS, max_size=80), min_size=1, max_size=10), st.integers(0, 9))
def test_a_signature_does_not_depend_on_the_batch_that_it_is_computed_in(texts, cut):
    whole = signatures(documents(*texts), PARAMS)
    parts = [
        signatures(part, PARAMS)
        for part in (documents(*texts).slice(0, cut), documents(*texts).slice(cut))
        if len(part)
    ]
    assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches([whole])


def test_sets_are_sorted_and_hold_each_shingle_once_however_often_it_occurs():
    sets = shingle_sets(
        documents("round and round again " * 2000, "word " * 5000, "", "one two three four five six"), PARAMS
    )
    assert np.diff(sets.offsets).tolist() == [4, 1, 0, 2]
    for start, end in zip(sets.offsets[:-1], sets.offsets[1:], strict=True):
        assert (np.diff(sets.hashes[start:end]) > 0).all()


def test_text_of_white_space_is_empty_and_text_of_signs_is_not():
    signed = signatures(documents("", " \t\n\u00a0\u3000", "!!!", "C++", "C#"), PARAMS)
    assert signed.column("num_shingles").to_pylist() == [0, 0, 1, 1, 1]
    assert signed.column("minhash").to_pylist()[0] == [2**32 - 1] * PARAMS.num_perm
    assert len({bytes(str(row), "ascii") for row in signed.column("minhash").to_pylist()[2:]}) == 3


def test_a_capped_document_is_flagged_and_keeps_the_hash_and_the_evidence_of_all_its_text():
    capped = "é" * MAX_CHARS
    long, other = f"{capped} tail", f"{capped} another"
    signed = signatures(documents(long, other, capped), PARAMS)
    assert signed.column("truncated").to_pylist() == [True, True, False]
    assert signed.column("length").to_pylist() == [MAX_CHARS + 5, MAX_CHARS + 8, MAX_CHARS]
    assert len(set(signed.column("exact").to_pylist())) == 3
    assert len({str(row) for row in signed.column("minhash").to_pylist()}) == 1
    assert len({str(row) for row in rows_of(shingle_sets(documents(long, other), PARAMS))}) == 2


def test_a_hundred_times_longer_document_keeps_its_whole_signature_in_order():
    text = " ".join(str(number) for number in range(80_000))
    signed = signatures(documents(text), PARAMS)
    assert signed.column("num_shingles").to_pylist() == [79_996]
    assert len(rows_of(shingle_sets(documents(text), PARAMS))[0]) == 79_996


def test_no_documents_and_nulls_and_short_strings_columns_are_read():
    assert signatures(documents(), PARAMS).schema == signature_schema(PARAMS)
    assert shingle_sets(documents(), PARAMS).offsets.tolist() == [0]
    nulls = pa.record_batch({"id": ["a", "b"], "text": pa.array([None, "Text"], pa.string())})
    assert signatures(nulls, PARAMS).column("num_shingles").to_pylist() == [0, 1]
    assert signatures(nulls, PARAMS).column("exact").to_pylist() == exact_of("", "text")


def test_bytes_that_are_not_utf8_are_hashed_without_reading_past_the_row():
    offsets = np.array([0, 3, 5, 9], np.int64)
    damaged = pa.Array.from_buffers(
        pa.large_string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"ab\xf0\xe2\x82\xf7\xbf\xbf\xbf")]
    )
    documents = pa.record_batch({"id": ["a", "b", "c"], "text": damaged})
    assert len(set(signatures(documents, PARAMS).column("exact").to_pylist())) == 3


def test_every_character_that_can_compose_is_checked_for_nfc():
    classes = characters().classes
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<") and unicodedata.is_normalized("NFC", chr(code)):
            assert classes[int(parts[1], 16)] & NFC_UNSURE, hex(code)
        if not unicodedata.is_normalized("NFC", chr(code)) and not 0xD800 <= code < 0xE000:
            assert classes[code] & NFC_UNSURE, hex(code)


def test_the_tables_leave_out_no_letter_mark_or_space():
    classes = characters().classes
    texts = [chr(code) for code in range(CODE_POINTS)]
    assert np.array_equal(classes & WORD != 0, [text.isalnum() for text in texts])
    assert np.array_equal(classes & SPACE != 0, [text.isspace() for text in texts])
    assert np.array_equal(classes & MARK != 0, [unicodedata.category(text)[0] == "M" for text in texts])


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": 0}, {"threshold": 1.1}, {"bands": 0}, {"ngram": 0}, {"max_chars": 300}, {"num_perm": 112}],
)
def test_parameters_without_meaning_are_refused(wrong):
    with pytest.raises(ValueError):
        DedupParams(**wrong)


def test_shingles_of_scripts_that_put_spaces_or_chinese_are_what_they_were():
    said = [
        "我们在图书馆里看书。然后回家。我们 再 去 市场 买 东西。",
        "Three words, héllo, and two more",
        "한국어 문장 과 다른 문장 하나 더",
        "カタカナと漢字 の 文 と ひらがな",
    ]
    hashes = shingle_sets(documents(*said), DedupParams(ngram=3)).hashes
    assert (
        hashlib.sha256(hashes.tobytes()).hexdigest()
        == "0a3d7d7bf7a682cc386d86193ec694549bf9c3a7700ae877217391e03290c812"
    )
