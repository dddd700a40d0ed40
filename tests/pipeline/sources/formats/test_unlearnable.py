"""What a row says about its use decides, and the same row has the same verdict in every format."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.sources.reading import documents_and_rejects

ASKED = {"role": "user", "content": "What is 2+2?"}
WRONG = {"role": "assistant", "content": "5"}
TALK = [ASKED, WRONG, ASKED, {"role": "assistant", "content": "4"}]


def marked(**marks: Any) -> list[dict[str, Any]]:
    return [ASKED, {**WRONG, **marks}, *TALK[2:]]


SAID = {"prompt": "What is 2+2?", "completion": "5"}
LEFT_OUT: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": marked(loss=False)}, "not_learnt", "message 2 of 'messages' has loss: false"),
    ({"messages": marked(weight=0)}, "not_learnt", "weight: 0"),
    ({"messages": marked(weight=0.0)}, "not_learnt", "weight: 0.0"),
    ({"messages": marked(train="no")}, "not_learnt", "train: 'no'"),
    ({"messages": marked(trainable="False")}, "not_learnt", "trainable: 'False'"),
    ({"messages": marked(loss_mask=0)}, "not_learnt", "loss_mask"),
    ({"messages": marked(loss_mask=[1, 0, 1])}, "not_learnt", "loss_mask"),
    ({"messages": marked(masked=True)}, "not_learnt", "masked: true"),
    ({"messages": marked(train_detail=[{"begin": 0, "train": False}])}, "not_learnt", "train_detail"),
    ({**SAID, "train_detail": [{"begin": 0, "train": False}]}, "not_learnt", "the row has train_detail"),
    ({**SAID, "train_detail": [None, [{"train": False}]]}, "not_learnt", "the row has train_detail"),
    ({**SAID, "training_detail": {"train": False}}, "not_learnt", "the row has training_detail"),
    ({**SAID, "label": False}, "not_learnt", "the row has label: false"),
    ({**SAID, "label": 0}, "not_learnt", "label: 0"),
    ({**SAID, "is_good": False}, "not_learnt", "is_good"),
    ({**SAID, "kto_tag": "bad"}, "not_learnt", "kto_tag: 'bad'"),
    ({"messages": TALK, "weight": 0}, "not_learnt", "the row has weight: 0"),
    ({"messages": TALK, "loss_mask": [0, 0, 0, 1]}, "not_learnt", "loss_mask"),
    ({"messages": TALK, "deleted": True}, "not_learnt", "deleted: true"),
    ({"messages": TALK, "images": [{"bytes": b"\xff\xd8\xff", "path": None}]}, "images", "column 'images'"),
    ({"messages": TALK, "image": {"bytes": b"\xff\xd8\xff", "path": "a.jpg"}}, "images", "column 'image'"),
    ({"messages": TALK, "video": "a.mp4"}, "images", "column 'video'"),
    ({"messages": TALK, "tools": [{"name": "add"}]}, "tool_calls", "column 'tools'"),
    ({"messages": TALK, "tools": '[{"name": "add"}]'}, "tool_calls", "column 'tools'"),
    ({"messages": TALK, "form": ["a"]}, "bad_form", "column 'form' holds a list"),
]
LEARNED: list[dict[str, Any]] = [
    {"messages": marked(loss=None, weight=1, train=True, masked=False, loss_mask=[1, 1])},
    {"messages": [{**ASKED, "loss": False, "weight": 0}, *TALK[1:]]},
    {"messages": TALK, "label": True},
    {"messages": TALK, "label": None},
    {"messages": TALK, "label": "sports"},
    {"messages": TALK, "label": 3},
    {"messages": TALK, "loss_mask": [0, 1, 0, 1]},
    {"messages": TALK, "deleted": False, "images": [], "image": None, "tools": "[]", "system": ""},
    {"messages": TALK, "images": [None], "image": {"bytes": None, "path": None}},
]
SETTINGS: list[dict[str, Any]] = [{}, {"metadata_columns": ("form",)}]


def in_json(directory: Path, row: dict[str, Any]) -> Path:
    path = directory / "rows.jsonl"
    path.write_text(json.dumps(row, default=lambda value: value.hex()))
    return path


def in_parquet(directory: Path, row: dict[str, Any]) -> Path:
    path = directory / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([row]), path)
    return path


def in_csv(directory: Path, row: dict[str, Any]) -> Path:
    path = directory / "rows.csv"
    cells = {
        name: json.dumps(value, default=lambda value: value.hex())
        if isinstance(value, list | dict)
        else ""
        if value is None
        else str(value)
        for name, value in row.items()
    }
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*cells])
        writer.writeheader()
        writer.writerow(cells)
    return path


WRITERS = {"json": in_json, "parquet": in_parquet, "csv": in_csv}


@pytest.mark.parametrize("settings", SETTINGS, ids=["all metadata", "one column"])
@pytest.mark.parametrize(("row", "reason", "why"), LEFT_OUT)
def test_a_row_that_says_that_it_is_not_to_be_learned_is_set_aside_by_that_name(
    tmp_path: Path, row: dict[str, Any], reason: str, why: str, settings: dict[str, Any]
) -> None:
    for name, write in WRITERS.items():
        if name == "csv" and ("form" in row or isinstance(row.get("loss_mask"), list)):
            continue  # a list is a text there
        found, rejects = documents_and_rejects(write(tmp_path, row), format="chat", **settings)
        assert (name, found, [str(one.reason) for one in rejects]) == (name, [], [reason])
        if name != "csv":
            assert why in rejects[0].detail


@pytest.mark.parametrize("row", LEARNED)
def test_marks_that_say_yes_or_nothing_change_nothing(tmp_path: Path, row: dict[str, Any]) -> None:
    expected = "".join(f"\x1e{one['role']}\x1f{one['content']}" for one in TALK)
    for name, write in WRITERS.items():
        if name == "csv" and ("image" in row or isinstance(row.get("loss_mask"), list)):
            continue
        found, rejects = documents_and_rejects(write(tmp_path, row), format="chat")
        assert (name, [one["text"] for one in found], rejects) == (name, [expected], [])


def test_a_preference_is_read_by_the_same_marks(tmp_path: Path) -> None:
    pair = {"prompt": "q", "chosen": "a", "rejected": "b"}
    for mark in ({"label": False}, {"images": [{"path": "a.png"}]}, {"weight": 0}):
        for write in WRITERS.values():
            found, (reject,) = documents_and_rejects(write(tmp_path, {**pair, **mark}), format="preferences")
            assert found == [] and next(iter(mark)) in reject.detail


def test_a_message_that_is_not_utf8_costs_its_own_row(tmp_path: Path) -> None:
    rows = [[("assistant", b"a")], [("assistant", b"\xff")], [("assistant", b"c")]]
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.binary())]))
    column = pa.array([[{"role": role, "content": text} for role, text in row] for row in rows], kind)
    claims = column.view(pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])))
    pq.write_table(pa.table({"messages": claims}), tmp_path / "rows.parquet")
    found, (reject,) = documents_and_rejects(tmp_path / "rows.parquet", format="chat")
    assert [one["text"] for one in found] == ["\x1eassistant\x1fa", "\x1eassistant\x1fc"]
    assert (reject.row, str(reject.reason)) == (2, "invalid_utf8")
