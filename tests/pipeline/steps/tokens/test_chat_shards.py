"""Conversations from files to shards: whole, never more than fits, cut after an answer only."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline.recipe.sections import ShardParams
from pipeline.sources.files import FilesConfig
from pipeline.stages import bpe, chat
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.steps import checks
from pipeline.steps.lineage.documents import CorpusText
from pipeline.steps.tokens.shards import SplitShards, prefixes
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS
from pipeline.store.params import CONTENT, MARKS, MESSAGE, PAIR, ROLES
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub, tokenize, tokenizer
from tests.pipeline.steps.training.test_plan import recipe
from tests.rows import jsonl
from trainer.data.shards import Shard

LONGEST = 65
SHARDS = ShardParams(validation_fraction=0.1, longest=LONGEST)
CHAT = bpe.TokenizerParams(vocab_size=500, chat=True)
WORDS = " ".join(TEXTS).split()
Rows = dict[str, list[dict[str, Any]]]


def said(chosen: random.Random, turns: int, most: int) -> list[dict[str, str]]:
    roles = ["user", "assistant"] * turns
    return [
        {"role": role, "content": " ".join(chosen.choices(WORDS, k=chosen.randint(1, most)))}
        for role in roles
    ]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Of the conversations, some do not fit as a whole, few not at all; the last is one of them again."""
    chosen = random.Random(1)
    talks: list[dict[str, Any]] = [
        {"id": f"talk-{n}", "messages": said(chosen, 1 + n % 4, 60 if n % 50 == 3 else 6)} for n in range(300)
    ]
    talks.append({"id": "again", "messages": talks[7]["messages"]})
    pairs = [said(chosen, 2, 3) for _ in range(80)]
    return {
        "talks": talks,
        "pairs": [
            {"id": f"pair-{n}", "prompt": both[:1], "chosen": both[1:2], "rejected": both[3:]}
            for n, both in enumerate(pairs)
        ],
    }


@pytest.fixture(scope="module")
def store(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Store:
    directory = tmp_path_factory.mktemp("chat")
    store = Store(directory / "store")
    for name, format in (("talks", "chat"), ("pairs", "preferences")):
        path = directory / f"{name}.jsonl"
        jsonl(path, *rows[name])
        collect(store, ENGINE, name, FilesConfig(paths=(str(path),), format=format), 20_000)
        scrub(store, ENGINE, name, PiiParams())
        judge(store, ENGINE, name, PROFILES["none"])
    deduplicate(store, ENGINE, ["talks", "pairs"], DedupParams())
    tokenizer(store, ENGINE, "mine", ["talks", "pairs"], CHAT, 0.1)
    for name in rows:
        tokenize(store, ENGINE, name, SHARDS)
    return store


def written(store: Store, corpus: str) -> list[list[int]]:
    shards = store.current(keys.token_shards(corpus))
    found = [Shard(prefix) for split in SPLITS for prefix in prefixes(shards, split)]
    return [shard.document(i).tolist() for shard in found for i in range(shard.num_documents)]


def as_text(tokenizer: Tokenizer, row: list[dict[str, str]]) -> str:
    return "[BOT]" + "".join(f"[{one['role'].upper()}]{one['content']}[END]" for one in row) + "[EOT]"


def test_conversations_are_whole_or_end_with_the_last_answer_that_fits(store: Store, rows: Rows) -> None:
    version = store.current(keys.token_shards("talks"))
    reader = Tokenizer.from_file(str(store.current(keys.TOKENIZER).path / "tokenizer.json"))
    found = {reader.decode(ids, skip_special_tokens=False): len(ids) for ids in written(store, "talks")}
    left_out = {
        one
        for part in version.parts
        for one in json.loads(version.file(part, "shards").read_text())["too_long"]
    }
    shortened, answers = 0, 0
    for row in rows["talks"][:-1]:
        messages = row["messages"]
        texts = [as_text(reader, messages[:until]) for until in range(2, len(messages) + 1, 2)]
        sizes = [len(reader.encode(text, add_special_tokens=False).ids) for text in texts]
        fitting = sum(size <= LONGEST for size in sizes)
        assert [text in found for text in texts] == [number == fitting for number in range(1, len(texts) + 1)]
        shortened += 0 < fitting < len(texts)
        answers += sum(len(one["content"].encode()) for one in messages[1 : 2 * fitting : 2])
        if not fitting:
            assert max(sizes) > LONGEST
    counts = version.counts
    assert len(left_out) == counts["too_long"] > 2 and counts["shortened"] == shortened > 20
    assert len(found) == 300 - counts["too_long"]
    assert counts["train_text_bytes"] + counts["validation_text_bytes"] == answers
    assert max(found.values()) <= LONGEST


def test_a_preference_is_one_document_of_two_conversations(store: Store, rows: Rows) -> None:
    reader = Tokenizer.from_file(str(store.current(keys.TOKENIZER).path / "tokenizer.json"))
    found = {reader.decode(ids, skip_special_tokens=False) for ids in written(store, "pairs")}
    expected = {
        as_text(reader, row["prompt"] + row["chosen"]) + as_text(reader, row["prompt"] + row["rejected"])
        for row in rows["pairs"]
    }
    fitting = {text for text in expected if len(reader.encode(text, add_special_tokens=False).ids) <= LONGEST}
    assert found == fitting and len(found) > 60
    assert store.current(keys.token_shards("pairs")).counts["too_long"] == len(expected) - len(found)


def test_what_is_too_long_is_counted_and_found_by_lineage(store: Store, rows: Rows) -> None:
    read = [*keys.judged("talks"), keys.DEDUP, keys.token_shards("talks")]
    assets = {key: {"path": str(store.current(key).path)} for key in read}
    reader = Tokenizer.from_file(str(store.current(keys.TOKENIZER).path / "tokenizer.json"))
    text = CorpusText(store, assets, "talks")
    stream = np.concatenate([shard.tokens for shard in text.train_shards])
    found_fates = set()
    for number in range(3, 300, 5):
        held = text.holding([f"talk-{number}"])
        (fate,) = text.fates(held).values()
        found_fates.add(fate)
        for begin, end in text.ranges(held):
            question = as_text(reader, rows["talks"][number]["messages"][:2]).removesuffix("[EOT]")
            assert reader.decode(stream[begin:end], skip_special_tokens=False).startswith(question)
        assert (fate == "in the training text") == bool([*text.ranges(held)])
    assert found_fates == {
        "too long for the context of the model",
        "in the training text",
        "held out for validation",
    }
    subject = checks.Subject(store.current(keys.token_shards("talks")), store, recipe("talks"))
    found = {one.name: one for one in checks.of_key(keys.token_shards("talks"))}
    assert found["adds_up"].look(subject).passed and found["conversations_fit"].look(subject).passed


def test_more_than_a_twentieth_that_does_not_fit_stops_the_run(store: Store) -> None:
    version = tokenize(Store(store.root), ENGINE, "talks", ShardParams(validation_fraction=0.1, longest=20))
    (fits,) = [one for one in checks.of_key(keys.token_shards("talks")) if one.name == "conversations_fit"]
    found = fits.look(checks.Subject(version, store, recipe("talks")))
    assert fits.blocking and not found.passed
    assert "are too long" in found.message and "the limit is 5%: raise `training.seq_len`" in found.message


def test_copies_go_and_two_processes_write_the_same_bytes(store: Store, tmp_path: Path) -> None:
    decisions = [pq.read_table(file.path) for file in store.current(keys.DEDUP).files("decisions")]
    (again,) = [row for table in decisions for row in table.to_pylist() if not row["keep"]]
    assert again["reason"] == "exact"
    copy = Store(Path(shutil.copytree(store.root, tmp_path / "store")))
    shutil.rmtree(copy.root / "token_shards")
    two = LocalEngine(workers=2, processes_pay_above=0)
    made = tokenize(copy, two, "talks", SHARDS)
    two.close()
    assert made.data_version == store.current(keys.token_shards("talks")).data_version and len(made.parts) > 1


def test_the_tokenizer_learns_what_is_said_and_no_mark(store: Store) -> None:
    reader = Tokenizer.from_file(str(store.current(keys.TOKENIZER).path / "tokenizer.json"))
    marks = {
        mark for mark in map(reader.decode, ([id] for id in range(13 + 256, 500))) if set(mark) & {*MARKS}
    }
    assert not marks


@pytest.mark.parametrize(
    "text", ["Plain.", "", f"{MESSAGE}user", f"a{MESSAGE}user{CONTENT}b", f"{MESSAGE}x{CONTENT}"]
)
def test_a_text_that_is_no_conversation_is_named(store: Store, tmp_path: Path, text: str) -> None:
    found = TokenizerFiles.read(store.current(keys.TOKENIZER).path)
    encoder = bpe.Encoder(found.tokenizer_json, found.boundaries, True)
    rows = pa.RecordBatch.from_pydict({"id": ["good", "bad"], "text": [f"{MESSAGE}assistant{CONTENT}", text]})
    with pytest.raises(PipelineError, match="document 'bad' is not a conversation"):
        SplitShards(tmp_path, "part", encoder, ShardParams(longest=LONGEST)).write([rows])


def test_a_conversation_is_not_pretrained_on_as_a_text(store: Store) -> None:
    with pytest.raises(PipelineError, match="a text to pretrain on is a conversation"):
        tokenize(Store(store.root), ENGINE, "pairs", ShardParams(validation_fraction=0.1))


def test_a_tokenizer_without_the_tokens_is_refused(tmp_path: Path) -> None:
    made = bpe.files(bpe.train([pa.array(TEXTS)], bpe.TokenizerParams(vocab_size=400)))
    ends = bpe.boundaries(made["tokenizer.json"], made["tokenizer_config.json"])
    encoder = bpe.Encoder(made["tokenizer.json"], ends, True)
    with pytest.raises(bpe.TokenizerError, match="no tokens for conversations: set `chat: true`"):
        SplitShards(tmp_path, "part", encoder, ShardParams(longest=LONGEST))


TALK = st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 5)), min_size=1, max_size=6)
TALKS = st.lists(TALK, min_size=1, max_size=2)


@given(st.lists(TALKS, min_size=1, max_size=6), st.integers(4, 30))
@settings(deadline=None)
def test_documents_are_joined_as_a_loop_over_their_messages_joins_them(
    documents: list[list[list[tuple[str, int]]]], longest: int
) -> None:
    """Role, END, begin and end are 1000 and more; what a message says are the numbers from 0 on."""
    ends, role_ids, end = bpe.Boundaries(1000, 1001), [1010, 1011, 1012, 1013], 1002
    texts = [
        PAIR.join("".join(f"{MESSAGE}{role}{CONTENT}{'é' * size}" for role, size in talk) for talk in talks)
        for talks in documents
    ]
    said = chat.messages(pa.array(map(str, range(len(texts)))), pa.array(texts, pa.large_string()))
    sizes = [size for talks in documents for talk in talks for _, size in talk]
    messages = [
        [role_ids[role], *range(size), end] for role, size in zip(said.roles.tolist(), sizes, strict=True)
    ]
    flat = np.array([id for message in messages for id in message], np.uint32)
    made = chat.joined(said, flat, np.array(list(map(len, messages))), ends, longest)
    expected, answers, shortened, waiting = [], [], 0, iter(messages)
    for talks in documents:
        whole = [[(role, next(waiting)) for role, _ in talk] for talk in talks]
        kept = whole
        if sum(2 + sum(len(ids) for _, ids in talk) for talk in whole) > longest:
            fitting = [
                talk[:until]
                for talk in whole[: len(whole) == 1]
                for until in range(1, len(talk))
                if talk[until - 1][0] == "assistant"
                and 2 + sum(len(ids) for _, ids in talk[:until]) <= longest
            ]
            kept = fitting[-1:]
            shortened += len(kept)
        expected.append([id for talk in kept for id in [1000, *(i for _, ids in talk for i in ids), 1001]])
        answers.append(sum(2 * (len(ids) - 2) for talk in kept for role, ids in talk if role == "assistant"))
    found = np.split(made.ids, np.cumsum(made.lengths)[:-1])
    assert [ids.tolist() for ids in found] == expected
    assert (made.answer_bytes.tolist(), made.shortened) == (answers, shortened)
