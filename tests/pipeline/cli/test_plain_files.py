"""scrub, quality and dedup on plain files, as a user types them."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.cli import main
from pipeline.sources.documents import document_id, location
from pipeline.sources.files import FilesConfig
from pipeline.stages import dedup, pii, quality
from pipeline.steps import plain_files
from pipeline.store.atomic import temporary_directory
from pipeline.store.engines.local import LocalEngine
from tests.rows import jsonl

ROOT = Path(__file__).parents[3]
LONG = " ".join(f"word{number}" for number in range(200))
Row = dict[str, Any]


def succeeds(*arguments: Path | str) -> dict[str, int]:
    """The numbers of the summary by their names."""
    said = StringIO()
    with redirect_stdout(said):
        assert main([*map(str, arguments)]) == 0
    table = said.getvalue().partition("\n\n")[0].splitlines()
    return {
        name.strip(): int(number.replace(",", ""))
        for name, _, number in (line.rpartition(" ") for line in table)
    }


def rows(path: Path) -> list[Row]:
    return pq.read_table(path).to_pylist()


def test_what_an_error_says_to_set_is_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = f"id;text\n1;{LONG}\n2;{LONG} more\n"
    (tmp_path / "a.csv").write_text(table, encoding="utf-16")
    given = ["quality", str(tmp_path / "a.csv"), "-o", str(tmp_path / "out")]
    assert main(given) == 2
    assert "set `encoding: utf-16`" in capsys.readouterr().err
    given += ["--encoding", "utf-16"]
    assert main(given) == 2
    assert 'set `separator: ";"`' in capsys.readouterr().err
    assert succeeds(*given, "--separator", ";")["documents"] == 2


def test_scrub_keeps_ids_replaces_values_and_says_where_they_were(tmp_path: Path) -> None:
    address = {"id": "x/1", "text": "Write to jane.doe@example.org or 10 people."}
    jsonl(tmp_path / "a.jsonl", address, {"id": 2, "text": "Nothing here."})
    zipped = gzip.compress(json.dumps({"id": "z", "text": "The server 8.8.8.8 is up."}).encode())
    (tmp_path / "b.jsonl.gz").write_bytes(zipped)
    pq.write_table(pa.table({"id": ["p"], "text": ["From parquet."]}), tmp_path / "c.parquet")
    counts = succeeds("scrub", tmp_path / "*.jsonl*", tmp_path / "c.parquet", "-o", tmp_path / "out")
    texts = {row["id"]: row["text"] for row in rows(tmp_path / "out" / "documents.parquet")}
    assert texts == {
        "x/1": "Write to [EMAIL] or 10 people.",
        "2": "Nothing here.",
        "z": "The server [IP] is up.",
        "p": "From parquet.",
    }
    assert rows(tmp_path / "out" / "spans.parquet") == [
        {"id": "x/1", "kind": "email", "start": 9, "end": 29},
        {"id": "z", "kind": "ip", "start": 11, "end": 18},
    ]
    assert counts == {"documents": 4, "with PII": 2, "PII": 2, "email": 1, "ip": 1, "set aside": 0}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"documents.parquet", "spans.parquet"}


def test_scrub_replaces_values_in_url_and_metadata_and_counts_them(tmp_path: Path) -> None:
    about = {"author": "jo@doe.org", "phone": 2125550187, "votes": 7}
    row = {"id": "a", "text": "Nothing.", "url": "https://x.org/?by=jo%40doe.org", **about}
    jsonl(tmp_path / "a.jsonl", row)
    counts = succeeds("scrub", tmp_path / "a.jsonl", "-o", tmp_path / "out")
    (document,) = rows(tmp_path / "out" / "documents.parquet")
    assert document["url"] == "https://x.org/?by=[EMAIL]"
    assert json.loads(document["metadata"]) == {"author": "[EMAIL]", "phone": "[PHONE]", "votes": 7}
    assert (counts["PII"], counts["in URLs"], counts["in metadata"]) == (0, 1, 2)


def test_scrub_replaces_the_kinds_asked_for_in_the_form_asked_for(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", {"id": "1", "text": "jane.doe@example.org at 8.8.8.8"})
    succeeds("scrub", source, "-o", tmp_path / "out", "--kinds", "ip", "--replacement", "format")
    assert [row["text"] for row in rows(tmp_path / "out" / "documents.parquet")] == [
        "jane.doe@example.org at 192.0.2.1"
    ]


def test_what_cannot_be_read_is_set_aside_with_file_row_and_reason_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"id": "1", "text": "one"}\n{"id": "2", "text": \n{"id": "1", "text": "again"}\n'
    )
    others = ({"id": "3", "text": None}, {"id": "1", "text": "in another file"}, {"id": "4", "text": "four"})
    jsonl(tmp_path / "b.jsonl", *others)
    counts = succeeds("scrub", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "out")
    assert [row["id"] for row in rows(tmp_path / "out" / "documents.parquet")] == ["1", "4"]
    assert [
        (row["file"], row["row"], row["reason"]) for row in rows(tmp_path / "out" / "rejects.parquet")
    ] == [
        ("a.jsonl", 2, "invalid_json"),
        ("a.jsonl", 3, "duplicate_id"),
        ("b.jsonl", 1, "null_text"),
        ("b.jsonl", 2, "duplicate_id"),
    ]
    found = [counts[name] for name in ("documents", "set aside", "duplicate_id", "null_text")]
    assert found == [2, 4, 2, 1]


def test_a_document_without_an_id_gets_a_stable_one(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", {"text": "one"}, {"text": "two", "id": "own"})
    succeeds("scrub", source, "-o", tmp_path / "out")
    assert [row["id"] for row in rows(tmp_path / "out" / "documents.parquet")] == [
        document_id(plain_files.CORPUS, location("a.jsonl", 1)),
        "own",
    ]


def test_quality_gives_every_document_a_verdict_beside_all_signals(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", {"id": "long", "text": LONG}, {"id": "short", "text": "Two words."})
    counts = succeeds("quality", source, "-o", tmp_path / "out", "--profile", "plain")
    long, short = rows(tmp_path / "out" / "verdicts.parquet")
    assert (long["id"], long["keep"], long["rule"], long["words"]) == ("long", True, None, 200)
    assert (short["id"], short["keep"], short["rule"], short["words"]) == ("short", False, "min_words", 2)
    assert set(long) == {"id", "keep", "rule", *quality.SIGNALS_SCHEMA.names}
    assert counts == {"documents": 2, "kept": 1, "removed": 1, "min_words": 1, "set aside": 0}


def test_quality_keeps_the_languages_asked_for_and_says_which_it_found(tmp_path: Path) -> None:
    texts = {
        "en": "The committee met again to hear what the engineers had found.",
        "de": "Der Ausschuss hörte noch einmal, was die Leute gefunden hatten.",
    }
    source = jsonl(tmp_path / "a.jsonl", *({"id": name, "text": text} for name, text in texts.items()))
    counts = succeeds("quality", source, "-o", tmp_path / "out", "--profile", "none", "--languages", "en,fr")
    found = [
        (row["id"], row["rule"], row["language"], row["language_confidence"] > 0.5)
        for row in rows(tmp_path / "out" / "verdicts.parquet")
    ]
    assert found == [("en", None, "en", True), ("de", "language", "de", True)]
    assert counts == {"documents": 2, "kept": 1, "removed": 1, "language": 1, "set aside": 0}


def test_dedup_decides_on_every_document_and_names_the_one_that_stays(tmp_path: Path) -> None:
    jsonl(
        tmp_path / "a.jsonl",
        {"id": "whole", "text": LONG + " and more"},
        {"id": "other", "text": "Nothing like it."},
    )
    jsonl(tmp_path / "b.jsonl", {"id": "near", "text": LONG}, {"id": "same", "text": LONG + " and more"})
    counts = succeeds("dedup", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "out")
    decisions = [
        (row["id"], row["keep"], row["reason"], row["duplicate_of"])
        for row in rows(tmp_path / "out" / "decisions.parquet")
    ]
    assert decisions == [
        ("whole", False, "exact", "same"),
        ("other", True, None, None),
        ("near", False, "near", "same"),
        ("same", True, None, None),
    ]
    assert counts == {"documents": 4, "kept": 2, "removed": 2, "exact": 1, "near": 1, "set aside": 0}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["decisions.parquet"]
    strict = succeeds("dedup", tmp_path / "[ab].jsonl", "-o", tmp_path / "strict", "--threshold", "0.999")
    assert (strict["kept"], strict["exact"]) == (3, 1)  # "near" stays, too


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["scrub", "{}/nowhere.jsonl", "-o", "{}/out"], "no file matches"),
        (
            ["scrub", "{}/a.jsonl", "-o", "{}/out", "--kinds", "email,fax"],
            "--kinds: unknown 'fax'; choose from email, phone",
        ),
        (
            ["quality", "{}/a.jsonl", "-o", "{}/out", "--profile", "best"],
            "--profile: unknown 'best'; choose from none, default",
        ),
        (
            ["quality", "{}/a.jsonl", "-o", "{}/out", "--languages", "en,english"],
            "'english' is not a language that can be detected; choose from ace af",
        ),
        (
            ["dedup", "{}/a.jsonl", "-o", "{}/out", "--threshold", "1.5"],
            "--threshold: must be at most 1, not 1.5",
        ),
        (
            ["scrub", "{}/a.jsonl", "-o", "{}/full"],
            "full already holds documents.parquet: name another directory",
        ),
        (
            ["scrub", "{}/a.jsonl", "-o", "{}/a.jsonl"],
            "cannot be written (File exists): name another directory",
        ),
        (["scrub", "{}/broken.jsonl", "-o", "{}/out"], "broken.jsonl, row 1: invalid_json"),
        (["scrub", "{}/a.jsonl", "-o", "{}/\udc80"], "its name is not UTF-8; choose another"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jsonl(tmp_path / "a.jsonl", {"id": "1", "text": "one"})
    (tmp_path / "broken.jsonl").write_text("{\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "documents.parquet").touch()
    assert main([argument.format(tmp_path) for argument in arguments]) == 2
    said, errors = capsys.readouterr()
    assert said == ""
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert says in errors
    assert not list(tmp_path.glob("out/*"))


def test_the_exit_status_of_a_mistake_is_2(tmp_path: Path) -> None:
    ended = piped("", "scrub", str(tmp_path / "nowhere.jsonl"), "-o", str(tmp_path / "out"))
    assert (ended.returncode, ended.stdout) == (2, "")
    *signs_of_life, mistake = ended.stderr.splitlines()  # a busy machine takes long enough for some
    assert mistake.startswith("error: ")
    assert set(signs_of_life) <= {"scrub: loading", f"reading {tmp_path / 'nowhere.jsonl'}"}


def piped(content: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", *arguments]
    return subprocess.run(command, cwd=ROOT, input=content, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
def test_documents_go_through_a_pipe_and_those_that_stay_come_out(tmp_path: Path) -> None:
    twice = [{"key": name, "body": f"Write to jane.doe@example.org {LONG}", "votes": 3} for name in "ab"]
    content = "".join(json.dumps(row) + "\n" for row in twice)
    columns = ("--text-column", "body", "--id-column", "key")
    scrubbed = piped(content, "scrub", "-", "-o", "-", *columns)
    assert (scrubbed.returncode, "with PII" in scrubbed.stderr) == (0, True)
    kept = piped(scrubbed.stdout, "dedup", "/dev/stdin", "-o", "-", "--documents")
    (document,) = map(json.loads, kept.stdout.splitlines())
    assert (document["id"], document["votes"]) == ("a", 3)
    assert document["text"].startswith("Write to [EMAIL] word0 ")


@pytest.mark.slow
def test_the_documents_that_quality_keeps_are_written(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", {"id": "good", "text": LONG}, {"id": "bad", "text": "word"})
    counts = succeeds("quality", source, "-o", tmp_path / "out", "--documents", "--profile", "plain")
    assert (counts["documents"], counts["kept"]) == (2, 1)
    assert [row["id"] for row in rows(tmp_path / "out" / "documents.parquet")] == ["good"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("scrub", "x" * 5_000), "cannot be read: File name too long"),
        (("quality", "-", "--text-column", ""), "--text-column: "),
        (("tokenize", "-", "--tokenizer", "t", "--out", "-"), "--out -: the result is a directory"),
    ],
)
def test_a_mistake_about_the_input_is_named_as_one(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = () if "--out" in arguments else ("-o", str(tmp_path / "out"))
    with (tmp_path / "empty").open("w+") as stdin, pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdin", stdin)
        assert main([*arguments, *out]) == 2
    errors = capsys.readouterr().err
    assert says in errors and errors.count("\n") == 1


def test_what_a_killed_command_left_is_removed_by_the_next_but_not_that_of_one_at_work(
    tmp_path: Path,
) -> None:
    with temporary_directory(tmp_path, ".partial-") as at_work:
        (tmp_path / ".partial-killed").mkdir()
        (tmp_path / ".partial-killed" / "part.parquet").touch()
        with temporary_directory(tmp_path, ".partial-") as own:
            assert sorted(tmp_path.iterdir()) == sorted([at_work, own])
    assert not list(tmp_path.iterdir())


COMMANDS: dict[str, tuple[Callable[..., plain_files.Results], Any]] = {
    "scrub": (plain_files.scrub, pii.PiiParams()),
    "quality": (plain_files.judge, quality.PROFILES["default"]),
    "dedup": (plain_files.deduplicate, dedup.DedupParams()),
}


def test_one_and_two_processes_write_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_files, "PART_BATCHES", 1)
    # four batches, with an address and a near duplicate here and there
    texts = (f"{number // 3} jane{number}@example.org {LONG * 20}" for number in range(700))
    source = jsonl(tmp_path / "a.jsonl", *({"id": str(n), "text": text} for n, text in enumerate(texts)))
    written: list[dict[str, bytes]] = []
    for workers in (1, 2):
        engine = LocalEngine(workers, processes_pay_above=0)
        written.append({})
        for command, (function, params) in COMMANDS.items():
            out = tmp_path / f"{command}-{workers}"
            files = FilesConfig(paths=(str(source),))
            outcome = function(files, out, params, engine, lambda *_: None)
            assert outcome.counts["documents"] == 700
            written[-1] |= {f"{command}/{path.name}": path.read_bytes() for path in outcome.files}
        engine.close()
    assert written[0] == written[1]


def test_a_run_that_fails_leaves_no_file_behind(tmp_path: Path) -> None:
    def fail(*_: int) -> None:
        raise RuntimeError

    source = jsonl(tmp_path / "a.jsonl", {"id": "1", "text": "one"})
    for function, params in COMMANDS.values():
        with pytest.raises(RuntimeError):
            function(FilesConfig(paths=(str(source),)), tmp_path / "out", params, LocalEngine(1), fail)
        assert list((tmp_path / "out").iterdir()) == []
