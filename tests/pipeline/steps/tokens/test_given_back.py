"""A tokenizer that does not give the text back is named when it is frozen and where its tokens are counted,
and no bits per byte are measured with it.
"""

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from pipeline.recipe.sections import ShardParams
from pipeline.sources.files import FilesConfig
from pipeline.stages import bpe
from pipeline.stages.bpe.given_back import GivenBack, lost
from pipeline.stages.dedup import DedupParams
from pipeline.steps import plain_files
from pipeline.steps.tokens.shards import SplitShards
from pipeline.steps.training.plan import _corpus_shards
from pipeline.store.manifest import breakdown
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS, prepare
from tests.pipeline.steps.make import deduplicate, tokenize, tokenizer
from tests.pipeline.steps.tokens.test_chat_template import KINDS

SPECIAL = ["[UNK]", "<s>", "</s>"]


def words() -> Tokenizer:
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(TEXTS, trainers.WordLevelTrainer(vocab_size=20, special_tokens=SPECIAL))
    return made


def normalizing(normalizer: normalizers.Normalizer) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.normalizer, made.decoder = normalizer, decoders.ByteLevel()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    return made


LOSING = {
    "unknown words": words(),
    "case": normalizing(normalizers.Lowercase()),
    "accents": normalizing(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
    "Unicode normalisation": normalizing(normalizers.NFKC()),
    "white space": normalizing(normalizers.Replace("  ", " ")),
}
TEXT = "Äpfel  costs ﬁve Pounds"


@pytest.mark.parametrize("kind", LOSING)
def test_what_a_tokenizer_loses_is_named(kind: str) -> None:
    found = GivenBack()
    ids = LOSING[kind].encode(TEXT, add_special_tokens=False).ids
    found.add([TEXT], [LOSING[kind].decode(ids, skip_special_tokens=False)])
    assert (found.share, [*found.kinds]) == (1.0, [kind])


@pytest.mark.parametrize(
    "kind", ["Metaspace always", "Metaspace first", "byte level", "byte level with a prefix"]
)
def test_an_exact_round_trip_is_silent_also_with_a_space_before_the_text(kind: str) -> None:
    found, made = GivenBack(), KINDS[kind]()
    texts = [TEXT, " begins with a space", "Plain.\n\nTwo  paragraphs 🙂"]
    found.add(texts, (made.decode(made.encode(text).ids, skip_special_tokens=False) for text in texts))
    assert (found.lost, found.checked) == (0, sum(len(text.encode()) for text in texts))


@given(st.text(), st.text())
def test_texts_are_the_same_but_for_what_was_lost(text: str, decoded: str) -> None:
    kinds = lost(text, decoded)
    assert kinds or text == decoded


@pytest.mark.parametrize("kind", ["unknown words", "case"])
def test_it_is_said_when_the_tokenizer_is_frozen_and_in_its_shards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    store, directory = Store(tmp_path / "store"), tmp_path / "tokenizer"
    prepare(store, tmp_path / "first.jsonl", TEXTS)
    deduplicate(store, ENGINE, ["first"], DedupParams())
    directory.mkdir()
    LOSING[kind].save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    with caplog.at_level(logging.WARNING):
        made = tokenizer(store, ENGINE, "mine", ["first"], bpe.ExistingTokenizer(source=str(directory)), 0.3)
        shards = tokenize(store, ENGINE, "first", ShardParams(validation_fraction=0.3))
    assert [*breakdown(made.counts, "lost_bytes")] == [kind]
    assert f"that it does not give back ({kind}): no bits per byte are measured" in caplog.text
    assert "of the held-out text, so its bits per byte say nothing" in caplog.text
    assert _corpus_shards(shards, "first", 1).not_given_back > 0.5


def test_it_is_said_of_plain_files_of_which_nothing_is_held_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    LOSING["unknown words"].save(str(tmp_path / "tokenizer.json"))
    params = ShardParams().model_copy(update={"validation_fraction": 0.0})
    mine = bpe.ExistingTokenizer(
        source=str(tmp_path / "tokenizer.json"), begin_of_text="<s>", end_of_text="</s>"
    )
    files = FilesConfig(paths=(str(tmp_path / "a.jsonl"),))
    with caplog.at_level(logging.WARNING):
        plain_files.tokenize(files, tmp_path / "out", lambda _: None, mine, params)
    assert "of the text, so its bits per byte say nothing" in caplog.text


def test_shards_of_an_exact_tokenizer_are_what_they_were(tmp_path: Path) -> None:
    made = bpe.files(bpe.train([pa.array(TEXTS)], bpe.TokenizerParams(vocab_size=400)))
    ends = bpe.boundaries(made["tokenizer.json"], made["tokenizer_config.json"])
    encoder = bpe.Encoder(made["tokenizer.json"], ends, True)
    writing = SplitShards(tmp_path, "part", encoder, ShardParams(validation_fraction=0.49))
    writing.write(
        [pa.RecordBatch.from_pydict({"id": ["a", "b", "c"], "text": pa.array(TEXTS[:3], pa.large_string())})]
    )
    record = tmp_path / "record.json"
    _, counts = writing.finish(record, {})
    assert not [name for name in counts if "lost" in name or "compared" in name]
    assert "not_given_back" not in json.loads(record.read_text())
