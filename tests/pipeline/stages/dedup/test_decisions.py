"""Which documents go, which stay, and that nothing but their content says so."""

import random
import time
from collections import Counter
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.stages.dedup import DedupParams, ShingleSets, shingle_sets, verify
from pipeline.stages.dedup.clusters import KEY_CHARACTERS
from pipeline.stages.dedup.verify import COMPARISONS, KEPT_PER_KEY
from tests.pipeline.stages.dedup.in_memory import deduplicate, jaccard
from tests.rows import documents

PARAMS = DedupParams()


def decide(texts: list[str], params: DedupParams = PARAMS) -> list[dict]:
    return deduplicate([documents(*texts)], [0], params).to_pylist()


def kept(texts: list[str], params: DedupParams = PARAMS) -> list[int]:
    return [i for i, row in enumerate(decide(texts, params)) if row["keep"]]


def words(seed: int, count: int) -> list[str]:
    generator = random.Random(seed)
    return [f"w{generator.randrange(100_000):05}" for _ in range(count)]


def edited(source: list[str], share: float, seed: int) -> list[str]:
    """The words with one contiguous share of them replaced."""
    count, generator = round(len(source) * share), random.Random(seed)
    start = generator.randrange(len(source) - count + 1)
    return [*source[:start], *words(seed + 10**6, count), *source[start + count :]]


def test_each_removal_names_a_kept_document_its_reason_and_the_exact_similarity():
    source = words(1, 400)
    rows = decide(
        [
            " ".join(source),
            " ".join(source).upper() + "\n",
            " ".join(edited(source, 0.05, 2)),
            "Something else entirely, of more than five words.",
        ]
    )
    assert [row["keep"] for row in rows] == [True, False, False, True]
    assert [row["reason"] for row in rows] == [None, "exact", "near", None]
    assert [row["duplicate_of"] for row in rows] == [None, "0000000", "0000000", None]
    assert [row["cluster"] for row in rows] == [3, 3, 3, 1]
    assert [row["jaccard"] for row in rows][:2] == [None, 1.0]
    # 20 words replaced inside change 24 of 396 shingles.
    assert rows[2]["jaccard"] == pytest.approx(372 / 420)


def test_an_exact_copy_of_a_near_duplicate_is_a_near_duplicate_of_the_kept_document():
    source = words(3, 200)
    near = " ".join(edited(source, 0.05, 4))
    rows = decide([near, " ".join(source) + " with more at its end", near])
    assert [row["keep"] for row in rows] == [False, True, False]
    assert {row["duplicate_of"] for row in rows} == {None, "0000001"}
    assert rows[0]["reason"] == rows[2]["reason"] == "near"
    assert rows[0]["jaccard"] == rows[2]["jaccard"]


def test_the_survivor_is_of_the_first_corpus_then_longer_then_of_the_lower_id():
    short, longer = " ".join(words(5, 300)), " ".join(words(5, 300)) + " more"
    assert kept([short, longer]) == [1]
    first, second = documents(short, ids=["z"]), documents(longer, ids=["a"])
    assert [row["keep"] for row in deduplicate([first, second], [0, 1], PARAMS).to_pylist()] == [True, False]
    assert [row["keep"] for row in deduplicate([second, first], [1, 0], PARAMS).to_pylist()] == [False, True]
    same = deduplicate([documents(short, short, short, ids=["c", "a", "b"])], [0], PARAMS).to_pylist()
    assert [row["id"] for row in same if row["keep"]] == ["a"]


@st.composite
def corpora(draw):
    """Documents made from others by edits of up to a quarter of their words, exact copies, empty ones."""
    texts = [draw(st.sampled_from([" ".join(words(seed, 60)) for seed in range(3)]))]
    for seed in range(draw(st.integers(3, 25))):
        source = texts[draw(st.integers(0, len(texts) - 1))].split() or words(seed, 60)
        share = draw(st.sampled_from([0.0, 0.02, 0.05, 0.1, 0.25]))
        texts.append(
            draw(st.sampled_from([" ".join(edited(source, share, seed)), ""]))
            if draw(st.integers(0, 9)) == 0
            else " ".join(edited(source, share, seed))
        )
    return texts, [draw(st.integers(0, 1)) for _ in texts]


def decisions(drawn: list[tuple[str, str, int]], cuts: list[int]) -> dict[str, dict]:
    """The decisions for (id, text, priority), in batches split at the cuts and at another priority."""
    batches, priorities, start = [], [], 0
    for end in range(1, len(drawn) + 1):
        if end == len(drawn) or end in cuts or drawn[end][2] != drawn[start][2]:
            batches.append(
                documents(
                    *(text for _, text, _ in drawn[start:end]), ids=[name for name, _, _ in drawn[start:end]]
                )
            )
            priorities.append(drawn[start][2])
            start = end
    return {row["id"]: row for row in deduplicate(batches, priorities, PARAMS).to_pylist()}


@settings(deadline=None, max_examples=20)
@given(corpora(), st.randoms(use_true_random=False), st.lists(st.integers(1, 25), max_size=4))
def test_neither_order_nor_batches_change_a_decision_and_every_removal_is_similar_to_a_kept_document(
    corpus, shuffler, cuts
):
    texts, priorities = corpus
    drawn = [
        (f"{i:03}", text, priority) for i, (text, priority) in enumerate(zip(texts, priorities, strict=True))
    ]
    rows = decisions(drawn, [])
    shuffled = drawn.copy()
    shuffler.shuffle(shuffled)
    assert decisions(shuffled, cuts) == rows
    sets = shingle_sets(documents(*texts), PARAMS)
    for row in rows.values():
        if row["keep"]:
            assert row["reason"] is None and row["duplicate_of"] is None and row["jaccard"] is None
            continue
        survivor = rows[row["duplicate_of"]]
        exact = np.float32(
            jaccard(
                *(
                    sets.hashes[sets.offsets[i] : sets.offsets[i + 1]]
                    for i in (int(survivor["id"]), int(row["id"]))
                )
            )
        )
        assert survivor["keep"] and row["jaccard"] == exact >= np.float32(PARAMS.threshold)
    assert Counter(row["duplicate_of"] or row["id"] for row in rows.values()) == {
        row["id"]: row["cluster"] for row in rows.values() if row["keep"]
    }


def test_members_linked_only_by_a_chain_stay_and_stand_for_those_like_them():
    chain = [words(7, 1000)]
    for step in range(6):
        chain.append([*chain[-1][60:], *words(100 + step, 60)])
    texts = [" ".join(text) for text in chain]
    rows = decide(texts)
    survivors = [i for i, row in enumerate(rows) if row["keep"]]
    assert survivors == [0, 2, 4, 6]
    sets = shingle_sets(documents(*texts), PARAMS)
    spans = [sets.hashes[sets.offsets[i] : sets.offsets[i + 1]] for i in range(len(texts))]
    for i, row in enumerate(rows):
        others = [jaccard(spans[i], spans[j]) for j in survivors if j != i]
        assert (max(others) < 0.8) if row["keep"] else max(others) >= 0.8


def test_ten_thousand_empty_documents_and_one_word_documents_are_never_near_each_other():
    texts = (
        [""] * 10_000
        + ["  \n"]
        + [f"word{i}" for i in range(1000)]
        + ["word7", "Word7 ", "C++", "C#", "!!!", "???"]
    )
    rows = decide(texts)
    assert all(row["keep"] and row["cluster"] == 1 for row in rows[:10_001])
    assert [row["reason"] for row in rows if not row["keep"]] == ["exact", "exact"]
    assert all(row["keep"] for row in rows[-4:])


def test_a_million_copies_of_one_document_leave_one_and_take_seconds():
    text = b"the same short page again"
    count = 1_000_000
    copies = pa.Array.from_buffers(
        pa.large_string(),
        count,
        [None, pa.py_buffer(np.arange(count + 1, dtype=np.int64) * len(text)), pa.py_buffer(text * count)],
    )
    ids = pa.array(np.arange(count)).cast(pa.string())
    documents = pa.record_batch({"id": ids, "text": copies})
    kept(["warm the compiled kernels up"])
    started = time.process_time()
    rows = deduplicate(
        [documents.slice(start, 100_000) for start in range(0, count, 100_000)], [0] * 10, PARAMS
    )
    assert time.process_time() - started < 20
    assert rows.filter(rows["keep"])["id"].to_pylist() == ["0"]
    assert rows["cluster"][0].as_py() == count
    assert set(rows["reason"].unique().to_pylist()) == {None, "exact"}


def test_pages_that_share_only_a_template_survive():
    header, footer = words(11, 60), words(12, 60)
    pages = [" ".join([*header, *words(1000 + i, 120), *footer]) for i in range(2000)]
    copies = [page + " seen" for page in pages[:50]]
    rows = decide(pages + copies)
    assert all(row["keep"] for row in rows[50:])
    assert sum(row["keep"] for row in rows[:50]) <= 1


def test_a_template_of_more_than_half_a_page_costs_time_linear_in_the_pages():
    header = words(13, 100)
    pages = [" ".join([*header, *words(5000 + i, 40)]) for i in range(KEPT_PER_KEY + 500)]
    started = time.process_time()
    assert kept(pages) == list(range(len(pages)))
    assert time.process_time() - started < 20
    assert COMPARISONS < KEPT_PER_KEY


def test_texts_that_differ_in_one_character_follow_the_threshold():
    dividend = "Regular quarterly dividend declared of 12 cents a share payable on March 3"
    assert kept([dividend, dividend.replace("12", "13")]) == [0, 1]
    long = " ".join(words(17, 500))
    assert len(kept([long, long[:-1] + "x"])) == 1
    assert kept(["a b c d", "a b c e"]) == [0, 1]


# Words of each script, as its texts put them: without spaces between.
WITHOUT_SPACES = {
    "Thai": "ประเทศ ภาษา หนังสือ แม่น้ำ ตลาด อาหาร โรงเรียน ครู ฝน ทะเล ภูเขา ดอกไม้",
    "Lao": "ປະເທດ ພາສາ ປຶ້ມ ແມ່ນ້ຳ ຕະຫຼາດ ອາຫານ ໂຮງຮຽນ ຄູ ຝົນ ທະເລ ພູເຂົາ ດອກໄມ້",
    "Khmer": "ប្រទេស ភាសា សៀវភៅ ទន្លេ ផ្សារ អាហារ សាលារៀន គ្រូ ភ្លៀង សមុទ្រ ភ្នំ ផ្កា",
    "Burmese": "နိုင်ငံ ဘာသာ စာအုပ် မြစ် ဈေး အစားအစာ ကျောင်း ဆရာ မိုး ပင်လယ် တောင် ပန်း",
    "Tibetan": "རྒྱལ་ཁབ སྐད་ཡིག དེབ གཙང་པོ ཁྲོམ ཟས སློབ་གྲྭ དགེ་རྒན ཆར་པ རྒྱ་མཚོ རི མེ་ཏོག",
}


@pytest.mark.parametrize("script", WITHOUT_SPACES)
def test_a_changed_word_makes_a_near_duplicate_in_scripts_without_spaces(script: str):
    chosen, known = random.Random(script), WITHOUT_SPACES[script].split()
    said = [chosen.choice(known) for _ in range(120)]
    changed = [*said[:60], known[0] if said[60] == known[1] else known[1], *said[61:]]
    other = [chosen.choice(known) for _ in range(120)]
    assert kept(["".join(said), "".join(changed), "".join(other)]) in ([0, 2], [1, 2])


def test_look_alikes_are_different_texts_unless_unicode_says_they_are_the_same():
    latin = "The paper and a copy are about one ocean"
    assert kept([latin, latin.replace("a", "\u0430").replace("o", "\u043e")]) == [0, 1]
    assert (
        len(
            kept(
                [
                    "Le café était fermé dès midi hier",
                    "Le cafe\u0301 e\u0301tait ferme\u0301 de\u0300s midi hier",
                ]
            )
        )
        == 1
    )
    assert kept(
        ["full width text stays what it is", "\uff46\uff55\uff4c\uff4c width text stays what it is"]
    ) == [0, 1]


def test_a_very_long_document_takes_time_linear_in_its_length():
    def seconds(repeats: int) -> float:
        text = " ".join(f"{i % 9973}x{i}" for i in range(repeats))
        started = time.process_time()
        assert len(kept([text, text + " tail"])) == 1
        return time.process_time() - started

    seconds(1000)
    assert seconds(1_000_000) < 40 * max(seconds(100_000), 0.02)


def test_containment_removes_an_excerpt_that_jaccard_keeps():
    source = words(19, 400)
    texts = [" ".join(source), " ".join(source[:260])]
    loose = DedupParams(measure="containment", bands=64, rows=4)
    assert kept(texts, DedupParams(bands=64, rows=4)) == [0, 1]
    rows = decide(texts, loose)
    assert [row["keep"] for row in rows] == [True, False]
    assert rows[1]["jaccard"] == pytest.approx(256 / 396)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.frozensets(st.integers(1, 12), min_size=1), min_size=2, max_size=8),
    st.sampled_from([0.2, 0.5, 0.8, 1.0]),
)
def test_verification_keeps_what_no_kept_document_is_similar_to(members, threshold):
    hashes = np.array([value for member in members for value in sorted(member)], np.uint64)
    offsets = np.cumsum([0] + [len(member) for member in members])
    keys = np.ones((len(members), 3), np.uint64)
    verified = verify(
        keys, ShingleSets(offsets, hashes), np.arange(len(members)), DedupParams(threshold=threshold)
    )
    for i, member in enumerate(members):
        similarity = [len(member & other) / len(member | other) for other in members]
        earlier = [j for j in range(i) if verified.keeper[j] == j and similarity[j] >= threshold]
        assert verified.keeper[i] == (earlier[0] if earlier else i)
        assert (
            verified.jaccard[i] == np.float32(similarity[earlier[0]])
            if earlier
            else np.isnan(verified.jaccard[i])
        )


def test_no_documents_make_no_decisions():
    assert deduplicate([], [], PARAMS).num_rows == 0
    assert deduplicate([documents()], [0], PARAMS).num_rows == 0


def test_a_cluster_too_large_for_a_task_is_verified_in_pieces_of_like_length(monkeypatch: pytest.MonkeyPatch):
    source = words(1, 400)
    family = [" ".join(source[: 400 - number]) for number in range(20)]
    texts = [*family, *family]
    assert kept(texts) == [0]
    lengths = [len(text) + KEY_CHARACTERS for text in family]
    module = import_module("pipeline.stages.dedup.clusters")
    monkeypatch.setattr(module, "PIECE_CHARACTERS", sum(lengths[:7]))
    assert kept(texts) == [0, 7, 15]
    assert [row["duplicate_of"] for row in decide(texts)][20:28] == [*["0000000"] * 7, "0000007"]
