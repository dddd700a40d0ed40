"""2,000 random rows in all forms of conversations: each is a document or set aside, whatever holds it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.recipe.sections import ShardParams
from pipeline.sources.documents import Batches, document_id, own_id
from pipeline.sources.files import FilesConfig
from pipeline.sources.formats.conversations import columns_of, conversation
from pipeline.sources.formats.rows import RowReader
from pipeline.sources.hub import dataset
from pipeline.sources.source import RefusedError, Rejected
from pipeline.stages import bpe
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.store.store import Store
from tests.pipeline.sources.reading import documents_and_rejects
from tests.pipeline.sources.talks import NOT_TO_BE_LEARNED, Row, files
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub, tokenize, tokenizer
from tests.rows import jsonl

FORMATS = ("chat", "preferences")
Verdicts = dict[int, str]  # the text of a row, or why it is set aside


def in_json(path: Path, rows: list[Row]) -> Path:
    path = path.with_suffix(".jsonl")
    jsonl(path, *rows)
    return path


def in_parquet(path: Path, rows: list[Row]) -> Path:
    path = path.with_suffix(".parquet")
    names = dict.fromkeys(name for row in rows for name in row)
    pq.write_table(pa.table({name: pa.array([row.get(name) for row in rows]) for name in names}), path)
    return path


def verdicts(rows: list[Row], documents: list[dict[str, Any]], rejects: list[Rejected]) -> Verdicts:
    numbers = {document_id("c", own_id(row["id"])): number for number, row in enumerate(rows, start=1)}
    found = {numbers[one["id"]]: one["text"] for one in documents}
    reasons = {one.row: str(one.reason) for one in rejects if one.row is not None}
    assert not found.keys() & reasons.keys() and len(found) + len(rejects) == len(rows)
    return found | reasons


def of_hub(path: Path, config: FilesConfig) -> tuple[list[dict[str, Any]], list[Rejected]]:
    datasets = pytest.importorskip("datasets")
    stream = datasets.load_dataset("parquet", data_files=[str(path)], split="train", streaming=True)
    rejects: list[Rejected] = []
    batches = Batches("c", rejects)
    read = [*dataset._read(stream, RowReader(path.name, config, batches)), *batches.rest()]
    return [row for batch in read for row in batch.to_pylist()], rejects


@pytest.mark.parametrize("format", FORMATS)
def test_every_row_has_the_same_verdict_in_json_and_parquet(tmp_path: Path, format: str) -> None:
    seen: Counter[str] = Counter()
    for place, rows in enumerate(files(format, seed=1, count=1000, each=50)):
        path = tmp_path / str(place)
        found = verdicts(rows, *documents_and_rejects(in_json(path, rows), format=format))
        assert verdicts(rows, *documents_and_rejects(in_parquet(path, rows), format=format)) == found
        seen.update("document" if one.startswith("\x1e") else one for one in found.values())
        said = [part for one in found.values() for part in one.split("\x1e")]
        assert not any(part.startswith("assistant") and NOT_TO_BE_LEARNED in part for part in said)
    assert seen["document"] > 300 and len(seen) > 5 and seen["not_learnt"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_every_row_has_the_same_verdict_on_the_hub(tmp_path: Path, format: str) -> None:
    for place, rows in enumerate(files(format, seed=1, count=1000, each=50)):
        path = in_parquet(tmp_path / str(place), rows)
        config = FilesConfig.model_validate({"paths": [str(path)], "format": format})
        found = verdicts(rows, *documents_and_rejects(path, format=format))
        assert verdicts(rows, *of_hub(path, config)) == found


@pytest.mark.slow
def test_rows_of_all_forms_become_shards_and_none_is_lost(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for format in FORMATS:
        for place, rows in enumerate(files(format, seed=1, count=1000, each=50)):
            in_json(tmp_path / f"{format}-{place}", rows)
        paths = (str(tmp_path / f"{format}-*.jsonl"),)
        config = FilesConfig.model_validate({"paths": paths, "format": format})
        raw = collect(store, ENGINE, format, config, 50_000)
        assert raw.counts["documents"] + raw.counts["set_aside"] == 1000
        scrub(store, ENGINE, format, PiiParams())
        judge(store, ENGINE, format, PROFILES["none"])
    dedup = deduplicate(store, ENGINE, FORMATS, DedupParams())
    tokenizer(store, ENGINE, "mine", FORMATS, bpe.TokenizerParams(vocab_size=400, chat=True), 0.1)
    written = [tokenize(store, ENGINE, name, ShardParams(longest=300)).counts for name in FORMATS]
    kept = sum(one[f"{split}_documents"] for one in written for split in ("train", "validation"))
    assert kept + sum(one["too_long"] for one in written) == dedup.counts["kept"]


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([*map(str, TEXTS[:2])]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=6,
)
KEYS = (
    "role",
    "content",
    "from",
    "value",
    "weight",
    "loss_mask",
    "tool_calls",
    "reasoning_content",
    "type",
    "text",
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(KEYS), ANYTHING | st.sampled_from(("user", "assistant", "gpt"))),
    max_size=3,
)


@given(st.sampled_from(FORMATS), st.data())
@settings(deadline=None, max_examples=100)
def test_no_row_is_more_than_set_aside(format: Any, data: st.DataObject) -> None:
    names = (*columns_of(format), "label", "images", "tools", "loss_mask")
    row = data.draw(st.dictionaries(st.sampled_from(names), ANYTHING | MESSAGES, max_size=5))
    try:
        text = conversation(format, row)
    except RefusedError as error:
        assert str(error)
    else:
        assert "\x1eassistant\x1f" in text
