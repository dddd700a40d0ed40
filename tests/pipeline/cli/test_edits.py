"""What `edits` cut can be read, scrubbed, and put back."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RECIPES
from pipeline.recipe.variants import check_graph
from pipeline.sources.files import FilesConfig
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect, edit

TEXTS = [
    "Subject: tea\nFrom: jane.doe@example.org\n\nIt is at four.\n",
    "Home\nA story.\n",
    "Home\nAnother.\n",
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    recipe["corpora"] = [{"name": "notes", "source": {"kind": "files", "paths": ["notes.jsonl"]}}]
    recipe["edits"] = {"rules": ["mail_headers"], "repeated": [{"within": "corpus", "min_documents": 2}]}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    lines = (json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(TEXTS))
    (tmp_path / "notes.jsonl").write_text("".join(lines))
    store, loaded, engine = Store(tmp_path / "store"), load_recipe(tmp_path / "recipe.yaml"), LocalEngine(1)
    source = FilesConfig(paths=("notes.jsonl",)).anchored(tmp_path)
    collect(store, engine, "notes", source, loaded.raw.part_bytes)
    edit(store, engine, "notes", loaded.rules("notes").edits, keys.raw("notes"))
    return tmp_path


def test_restore_prints_the_texts_that_were_read(
    project: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["restore", "notes"]) == 0
    rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    assert main(["restore", "notes", "--document", rows[1]["id"]]) == 0
    assert json.loads(capsysbinary.readouterr().out) == rows[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["nots"], "unknown 'nots'"), (["notes", "--document", "x"], "no such document in notes")],
)
def test_what_is_not_there_is_named(
    project: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_inspect_shows_cuts_without_personal_data(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "documents", "mail_headers"]) == 0
    shown = capsys.readouterr().out
    assert "Subject: tea" in shown
    assert "From: [EMAIL]" in shown
    assert main(["inspect", "documents", "repeated_line"]) == 0
    assert capsys.readouterr().out.count("    Home") == 2


def test_a_variant_may_leave_out_edits_but_not_add_the_first(project: Path) -> None:
    written = load_recipe(project / "recipe.yaml")
    without = load_recipe(project / "recipe.yaml", {"edits": {"rules": [], "repeated": []}})
    check_graph(without, written, "here")
    with pytest.raises(Exception, match="add the first edits of a corpus"):
        check_graph(written, without, "here")


def test_an_address_at_the_end_of_what_is_shown_of_a_cut_is_not_shown(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shortened first, half of it would be no address any more."""
    start = f"Subject: {'tea ' * 95}"
    text = (
        f"{start}{' ' * (390 - len(start))}jane.doe@example.org\nFrom: a@example.org\n\nA text of its own.\n"
    )
    (project / "notes.jsonl").write_text(json.dumps({"id": "0", "text": text}) + "\n")
    store, loaded, engine = Store(project / "store"), load_recipe(project / "recipe.yaml"), LocalEngine(1)
    collect(
        store, engine, "notes", FilesConfig(paths=("notes.jsonl",)).anchored(project), loaded.raw.part_bytes
    )
    edit(store, engine, "notes", loaded.rules("notes").edits, keys.raw("notes"))
    assert main(["inspect", "documents", "mail_headers"]) == 0
    shown = capsys.readouterr().out
    assert "Subject: tea" in shown
    assert "jane" not in shown
