"""The hub source against a hub on loopback; reading runs in other processes, since the hub's libraries take
their settings when imported.
"""

import gzip
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.sources.documents import document_id, location
from tests.pipeline.sources.hub_server import CARD, Hub, parquet, row_groups


def texts(result: Any) -> list[str]:
    return [row["text"] for rows in result["rows"].values() for row in rows]


def test_a_split_arrives_file_by_file_pinned_to_its_commit(read: Any, hub: Hub) -> None:
    result = read()
    assert [(unit[0], unit[3]) for unit in result["units"]] == [
        (path, hub.commits[0]) for path in ("data/train-00000.parquet", "data/train-00001.parquet")
    ]
    assert [unit[2] for unit in result["units"]] == [
        len(hub.files[hub.commits[0]][unit[0]]) for unit in result["units"]
    ]
    assert texts(result) == ["first text", "second text", "third text"]
    assert result["rows"]["data/train-00000.parquet"][0]["metadata"] == '{"score":0.5}'
    assert result["rejects"] == [["data/train-00001.parquet", 2, "null_text"]]
    assert hub.tokens_seen == {None}


def test_max_documents_ends_the_reading_across_files(read: Any) -> None:
    result = read(config={"max_documents": 3})
    assert texts(result) == ["first text", "second text", "third text"]
    assert len(read(config={"max_documents": 1})["rows"]["train-first-1"]) == 1


def test_a_new_commit_changes_fingerprints_and_keeps_ids_while_a_pinned_revision_stays(
    read: Any, hub: Hub
) -> None:
    before = read(config={"split": "test"})
    hub.files[hub.commits[1]] = {
        **hub.files[hub.commits[0]],
        "data/test-00000.parquet": parquet(id=["t", "u"], text=["held out", "added"], score=[0.0, 1.0]),
    }
    after = read(config={"split": "test"})
    assert texts(after) == ["held out", "added"]
    assert after["units"][0][3] == hub.commits[1]
    assert after["units"][0][1] != before["units"][0][1]
    assert after["rows"]["data/test-00000.parquet"][0] == before["rows"]["data/test-00000.parquet"][0]
    assert read(config={"split": "test", "revision": hub.commits[0]}) == before


def test_a_broken_data_file_is_named_and_its_neighbors_arrive(read: Any, hub: Hub) -> None:
    files = hub.files[hub.commits[0]]
    files["data/train-00000.parquet"] = files["data/train-00000.parquet"][:-20]
    result = read()
    assert texts(result) == ["third text"]
    assert ["data/train-00000.parquet", None, "broken_parquet"] in result["rejects"]
    assert result["lost_bytes"] == len(files["data/train-00000.parquet"])


@pytest.mark.parametrize("suffix", ["jsonl", "ndjson", "jsonl.gz"])
def test_a_broken_line_loses_that_line_alone(read: Any, hub: Hub, suffix: str) -> None:
    rows = [json.dumps({"text": f"text {n}", "nested": [n]}) for n in range(300)]
    rows[100], rows[200] = '{"text": "cut', '{"text": "\\ud800"}'
    content = "\n".join(rows).encode()
    packed = gzip.compress(content) if suffix.endswith(".gz") else content
    hub.files = {hub.commits[0]: {f"a.{suffix}": packed}}
    result = read()
    assert texts(result) == [f"text {n}" for n in range(300) if n not in (100, 200)]
    reasons = [[f"a.{suffix}", 101, "invalid_json"], [f"a.{suffix}", 201, "lone_surrogate"]]
    assert (result["rejects"], result["lost_bytes"]) == (reasons, 0)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_files_with_other_columns_or_types_than_the_first_are_read_by_their_own(
    read: Any, hub: Hub, suffix: str
) -> None:
    rows: list[dict[str, Any]] = [{"text": "a", "n": 1}, {"text": "b", "n": "x"}, {"text": "c", "more": [1]}]
    write = {"jsonl": lambda row: json.dumps(row).encode(), "parquet": lambda row: parquet(**row)}[suffix]
    columns = rows if suffix == "jsonl" else [{name: [one] for name, one in row.items()} for row in rows]
    hub.files = {hub.commits[0]: {f"{n}.{suffix}": write(row) for n, row in enumerate(columns)}}
    result = read()
    assert (texts(result), result["rejects"]) == (["a", "b", "c"], [])


def test_a_column_of_a_type_or_name_that_no_metadata_has_costs_no_row(read: Any, hub: Hub) -> None:
    pairs = pa.array([[("a", "b")], []], pa.map_(pa.string(), pa.string()))
    told = pa.array(["one", "two"])
    table = pa.Table.from_arrays([told, pairs, told, told], ["text", "pairs", "twice", "twice"])
    hub.files = {hub.commits[0]: {"a.parquet": row_groups(table)}}
    result = read()
    assert (texts(result), result["rejects"]) == (["one", "two"], [])
    assert "column 'pairs' is of type map<" in read({"text_column": "pairs"})["error"]


def test_a_broken_row_group_costs_its_own_rows_alone(read: Any, hub: Hub) -> None:
    content = row_groups(*(pa.table({"text": [f"{n} " + "x" * 500]}) for n in range(3)))
    place = content.index(b"1 xxx")
    hub.files = {hub.commits[0]: {"a.parquet": content[: place - 20] + b"\xff" * 30 + content[place + 10 :]}}
    result = read()
    assert [text[:1] for text in texts(result)] == ["0", "2"]
    assert result["rejects"] == [["a.parquet", 2, "broken_parquet"]]


def test_xml_is_told_before_anything_is_read(read: Any, hub: Hub) -> None:
    hub.files = {hub.commits[0]: {"a.xml": b"<a>text</a>"}}
    assert "has no text to read: it is XML, whose tags would be learned" in read()["error"]


def test_a_damaged_compressed_file_is_named_and_its_neighbors_arrive(read: Any, hub: Hub) -> None:
    whole = gzip.compress(random.Random(1).randbytes(3000).hex().join(['{"text": "', '"}\n']).encode())
    damaged = {
        "cut": whole[:-1000],
        "flipped": whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:],
        "no gzip": b"rubbish" * 100,
    }
    for content in damaged.values():
        for names in ("ab", "ba"):
            files = dict(zip((f"{name}.jsonl.gz" for name in names), (whole, content), strict=True))
            hub.begin()
            hub.files = {hub.commits[0]: files}
            result = read()
            assert len(texts(result)) == 1
            assert result["rejects"] == [[f"{names[1]}.jsonl.gz", None, "broken_data"]]


@pytest.mark.parametrize("write", [pa.ipc.new_stream, pa.ipc.new_file], ids=["stream", "file"])
def test_an_arrow_file_that_was_cut_is_named_and_its_neighbors_arrive(
    read: Any, hub: Hub, write: Callable[..., Any]
) -> None:
    table, sink = pa.table({"text": ["x" * 3000]}), io.BytesIO()
    with write(sink, table.schema) as writer:
        writer.write(table)
    whole = sink.getvalue()
    for size in (2, 100, 300, 1000, len(whole) - 4):
        for names in ("ab", "ba"):
            hub.begin()
            files = dict(zip((f"{name}.arrow" for name in names), (whole, whole[:size]), strict=True))
            hub.files = {hub.commits[0]: files}
            result = read()
            assert texts(result) == ["x" * 3000]
            assert result["rejects"] == [[f"{names[1]}.arrow", None, "broken_data"]]


NO_ROWS = pa.table({"text": pa.array([], pa.string())})


@pytest.mark.parametrize(
    ("suffix", "empty", "content"),
    [
        ("jsonl", b"", b'{"text": "a"}'),
        ("jsonl.gz", gzip.compress(b""), gzip.compress(b'{"text": "a"}')),
        ("json", b"", b'[{"text": "a"}]'),
        ("json", b"[]", b'[{"text": "a"}]'),
        ("parquet", row_groups(NO_ROWS), parquet(text=["a"])),
        ("parquet", row_groups(NO_ROWS), row_groups(NO_ROWS, pa.table({"text": ["a"]}))),
        ("txt", b"", b"a"),
    ],
    ids=["lines", "compressed", "json", "list", "parquet", "row group", "text"],
)
def test_empty_files_of_a_split_are_no_fault(
    read: Any, hub: Hub, suffix: str, empty: bytes, content: bytes
) -> None:
    for order in ((empty, content), (content, empty), (empty, content, empty)):
        hub.begin()
        hub.files = {hub.commits[0]: {f"{n}.{suffix}": one for n, one in enumerate(order)}}
        result = read()
        assert (texts(result), result["rejects"]) == (["a"], []), result


def test_a_download_that_the_server_drops_in_mid_file_goes_on_and_nothing_is_lost(
    read: Any, hub: Hub
) -> None:
    texts_of_many = [f"{n} " + os.urandom(500).hex() for n in range(2000)]
    hub.files[hub.commits[0]] = {
        "README.md": CARD,
        "data/train-0.parquet": parquet(text=texts_of_many),
        "data/test-0.parquet": parquet(text=["x"]),
    }
    hub.breaks = 2
    assert texts(read()) == texts_of_many
    assert hub.breaks == 0


def test_a_hub_that_is_busy_for_a_moment_is_asked_again(read: Any, hub: Hub) -> None:
    expected = read()
    for number, status in ((1, 429), (1, 503), (3, 500)):
        hub.asked.clear()
        hub.busy = {number: status}
        assert read() == expected
        assert len(hub.asked) >= number


def test_a_new_commit_that_leaves_a_file_as_it_is_leaves_its_fingerprint(read: Any, hub: Hub) -> None:
    before = read()
    hub.files[hub.commits[1]] = {
        **hub.files[hub.commits[0]],
        "README.md": CARD + b"Better words.",
        "data/train-00001.parquet": parquet(id=["z"], text=["new"]),
    }
    after = read()
    assert [unit[3] for unit in after["units"]] == [hub.commits[1]] * 2
    assert [one[1] == other[1] for one, other in zip(before["units"], after["units"], strict=True)] == [
        True,
        False,
    ]


def test_offline_the_hubs_cache_is_read_and_without_it_one_sentence_says_what_to_do(
    read: Any, hub: Hub, tmp_path: Path
) -> None:
    online = read()
    assert (
        "HF_HUB_OFFLINE is set; download it once while online: hf download --repo-type dataset org/set"
        in read(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "none"))["error"]
    )
    download = (
        "from huggingface_hub import snapshot_download; snapshot_download('org/set', repo_type='dataset')"
    )
    settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
    subprocess.run(
        [sys.executable, "-c", download], env={**os.environ, **settings}, check=True, capture_output=True
    )
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    assert read(HF_HUB_OFFLINE="1", **nowhere) == online


@pytest.mark.parametrize("named", ["{elsewhere}", "../../../../mine.txt"], ids=["full path", "upwards"])
def test_a_card_cannot_have_files_of_this_machine_read(named: str, read: Any, tmp_path: Path) -> None:
    """Offline, `datasets` would read them."""
    (tmp_path / "mine.txt").write_text("private\n")
    repository = tmp_path / "hub" / "datasets--org--set"
    files = repository / "snapshots" / ("a" * 40)
    files.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(files.name)
    (files / "own.txt").write_text("public\n")
    for place, said in (
        ("own.txt", ""),
        (named.format(elsewhere=tmp_path / "mine.txt"), "not in its repository"),
    ):
        card = f"---\nconfigs:\n- config_name: default\n  data_files: {place}\n---\n"
        (files / "README.md").write_text(card)
        result = read(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
        assert said in result["error"] if said else texts(result) == ["public"]


def test_rows_that_are_lines_are_joined_to_the_articles_they_came_from(read: Any, hub: Hub) -> None:
    lines = [
        "",
        " = One = \n",
        "",
        " First line . \n",
        " = = Section = = \n",
        " More . \n",
        " = Two = \n",
        " Text = text . \n",
    ]
    hub.files[hub.commits[0]] = {
        "README.md": CARD,
        "data/train-0.parquet": parquet(text=lines),
        "data/test-0.parquet": parquet(text=["x"]),
    }
    result = read(config={"document_start": "= [^=]+ ="})
    assert texts(result) == [
        "= One = \n\n First line . \n = = Section = = \n More .",
        "= Two = \n Text = text .",
    ]
    assert result["rejects"] == []
    assert texts(read(config={"document_start": "= [^=]+ =", "max_documents": 1})) == texts(result)[:1]
    # A document is known by the row that it begins with.
    ids = [row["id"] for rows in result["rows"].values() for row in rows]
    assert ids == [document_id("c", location("data/train-0.parquet", row)) for row in (2, 7)]


COLLECT = """
import sys
from pathlib import Path
from pipeline.sources.hub.dataset import HubConfig
from pipeline.store.engines.local import LocalEngine
from pipeline.steps.corpus.ingest import Raw
from pipeline.store.store import Store
engine = LocalEngine(2, processes_pay_above=0)
made = Raw("c", HubConfig(name="org/set"), 1).make(Store(Path(sys.argv[1])), engine)
print(made.manifest["counts"]["documents"])
"""


def test_only_the_process_of_the_run_lists_a_data_set_and_tasks_ask_for_their_file_alone(
    hub: Hub, tmp_path: Path
) -> None:
    listings = {}
    for files, commit in zip((2, 6), hub.commits, strict=True):
        written = {f"data/train-{number}.jsonl": b'{"text": "first"}\n' for number in range(files)}
        hub.files[commit] = {"README.md": CARD, "data/test-0.jsonl": b'{"text": "x"}\n', **written}
        hub.asked.clear()
        settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / commit), "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, "-c", COLLECT, str(tmp_path / f"store-{files}")]
        ended = subprocess.run(
            command, env={**os.environ, **settings}, check=True, capture_output=True, text=True
        )
        assert ended.stdout == f"{files}\n"
        listings[files] = sum("train" not in path for path in hub.asked)
        assert all(any(name in path for path in hub.asked) for name in written)
    assert listings[2] == listings[6] > 0


def test_conversations_and_preferences_are_read_and_a_split_without_them_is_named(
    hub: Hub, read: Any
) -> None:
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello 🙂"}]
    files = hub.files[hub.commits[0]]
    files["data/train-00000.parquet"] = parquet(prompt_id=["a", "b"], messages=[said, said[:1]])
    files["data/train-00001.parquet"] = parquet(prompt_id=["c"], messages=[said])
    found = read({"format": "chat"})
    assert texts(found) == ["\x1euser\x1fHi\x1eassistant\x1fHello 🙂"] * 2
    assert found["rejects"] == [["data/train-00000.parquet", 2, "no_answer"]]
    refused = read({"format": "preferences"})["error"]
    assert "no column 'prompt' and 'chosen' and 'rejected', or 'chosen' and 'rejected'" in refused
