"""`python -m pipeline report`: a page that loads and runs nothing, and says what the store does not know."""

from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.recipe import RECIPES
from pipeline.sources.files import FilesConfig
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pages import SECTIONS, Page
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub
from tests.rows import jsonl

ENGINE = LocalEngine(1)
NOT_YET = "Not made yet: run dagster job execute -j pretrain."
HOSTILE = '<script src="https://evil.example/x.js">alert("jane.doe@example.org")</script>\x1b[2J\x00'
TEXT = HOSTILE + " ".join(f"word{number}" for number in range(200))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe of one corpus with nothing in its store."""
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    recipe["corpora"] = [{"name": "notes", "source": {"kind": "files", "paths": ["<b>notes.jsonl"]}}]
    recipe |= {"raw": {"part_bytes": 1_000_000}, "quality": "plain", "scrub": {}, "dedup": {}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    return tmp_path


def made(project: Path) -> Page:
    assert main(["report", "-o", str(project / "report.html")]) == 0
    return Page((project / "report.html").read_text(encoding="utf-8"))


def store_corpus(project: Path) -> None:
    """The corpus up to dedup: texts with a script and an address, one too short, two near duplicates."""
    store, path = Store(project / "store"), project / "<b>notes.jsonl"
    texts = {"short": f"Too short. {HOSTILE}", "long": f"{TEXT} and more", "almost": TEXT}
    jsonl(path, *({"id": name, "text": text} for name, text in texts.items()))
    collect(store, ENGINE, "notes", FilesConfig(paths=(path.name,)).anchored(project), part_bytes=1_000_000)
    scrub(store, ENGINE, "notes", PiiParams())
    judge(store, ENGINE, "notes", PROFILES["plain"])
    deduplicate(store, ENGINE, ["notes"], DedupParams())


def test_an_empty_store_gives_a_page_whose_sections_say_what_to_run(project: Path) -> None:
    page = made(project)
    assert list(page.sections) == SECTIONS
    assert all(NOT_YET in text for text in page.sections.values())


def test_what_is_stored_is_shown_and_only_the_rest_is_missing(project: Path) -> None:
    store_corpus(project)
    page = made(project)
    assert [name for name, text in page.sections.items() if NOT_YET not in text] == ["What was removed"]
    removed = page.sections["What was removed"]
    assert "min_words, notes: words = " in removed
    assert "Removed: near 1." in removed
    assert "Jaccard similarity 0.9" in removed


def test_a_text_with_a_script_is_text_and_its_address_is_gone(project: Path) -> None:
    store_corpus(project)
    page = made(project)
    assert page.loads == []
    assert not page.tags & {"script", "b", "link", "iframe", "object"}
    assert (
        'Too short. <script src="https://evil.example/x.js">alert("[EMAIL]")'
        in page.sections["What was removed"]
    )
    assert "jane.doe" not in page.source
    assert not {"\x1b", "\x00"} & set(page.source)


@pytest.mark.parametrize("name", ["", "recipe.yaml", "page"])
def test_only_a_file_for_a_page_is_overwritten(
    project: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written = (project / "recipe.yaml").read_text()
    assert main(["report", "-o", str(project / name) if name else name]) == 2
    assert "name a .html file" in capsys.readouterr().err
    assert (project / "recipe.yaml").read_text() == written
