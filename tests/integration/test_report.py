"""`python -m pipeline report` on a recipe whose job ran to its end: what the page says is what is stored."""

from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.reports.regulators import GAP
from pipeline.steps.lineage.checkpoints import checkpoints
from pipeline.steps.model import evaluate
from pipeline.store import keys
from pipeline.store.keys import Key
from tests.integration.project import Project
from tests.pages import SECTIONS, Page

CORPORA = ("topics", "stdlib")


@pytest.fixture(scope="module")
def page(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Page:
    out = tmp_path_factory.mktemp("report") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        finished.enter(patch)
        assert main(["report", "-o", str(out)]) == 0
    return Page(out.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_every_section_is_there_and_nothing_is_loaded(page: Page) -> None:
    assert list(page.sections) == SECTIONS
    assert "Not made yet" not in page.source
    assert page.loads == []
    assert not page.tags & {"script", "link", "iframe", "object", "embed", "form"}
    assert page.source.count('src="data:image/png;base64,') == 3
    assert "url(" not in page.source
    assert "@import" not in page.source


@pytest.mark.slow
def test_the_numbers_are_those_of_the_store(finished: Project, page: Page) -> None:
    store, sections = finished.store, page.sections
    evaluation = evaluate.read(store.current(keys.EVALUATION))
    last = [one for one in checkpoints(store) if one.saved][-1]
    assert last.name in sections[""]
    assert f"trained on {last.tokens:,} tokens" in sections[""]
    for bits in (evaluation["bits_per_byte"], evaluation["compressors"]["xz -9"]):
        assert f"{bits:.3f}" in sections[""]
        assert f"{bits:.3f}" in sections["Scores"]
    for corpus in CORPORA:
        raw, quality = (store.current(Key(stage, corpus)) for stage in ("raw", "quality"))
        shards = store.current(keys.token_shards(corpus)).counts
        for number in (raw.counts["documents"], raw.counts["text_bytes"], shards["train_tokens"]):
            assert f"{number:,}" in sections["Documents and bytes after each stage"]
        for rule in (name for name in quality.counts if name.startswith("rejected/")):
            assert rule.removeprefix("rejected/") in sections["What was removed"]
        assert f"{last.corpus_tokens[corpus]:,}" in sections["Mixture"]
        assert raw.data_version[:12] in sections["Lineage"]
    assert (
        f"email {store.current('corpora/topics/scrubbed').counts['spans/email']}"
        in sections["What was removed"]
    )
    assert f"python -m pipeline reproduce {last.name}" in sections["Lineage"]


@pytest.mark.slow
def test_the_page_shows_no_personal_data_and_no_directory_of_the_machine(
    finished: Project, page: Page
) -> None:
    assert "jane.doe@example.com" not in page.source
    assert str(finished.directory) not in page.source
    assert "topics.jsonl" in page.sections["Lineage"]


@pytest.mark.slow
def test_laws_are_cited_and_what_only_the_provider_knows_is_marked(page: Page) -> None:
    laws = page.sections[SECTIONS[-1]]
    assert "Article 53(1)(d) of Regulation (EU) 2024/1689" in laws
    assert "Civil Code section 3111(a)" in laws
    assert page.source.count(f"<mark>{GAP}</mark>") == page.source.count(GAP) > 20
    for numeral in range(1, 13):
        assert f"({numeral}) " in laws


@pytest.mark.slow
def test_a_model_from_before_a_change_is_reported_by_its_name(
    finished: Project,
    page: Page,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = finished.store.current(keys.PRETRAINED_MODEL).path.name[:8]
    finished.enter(monkeypatch)
    changed = finished.recipe | {"quality": "plain", "training": finished.recipe["training"] | {"seed": 7}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(changed))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    out = tmp_path / "report.html"
    assert main(["report", "--model", name, "-o", str(out)]) == 0
    assert "not made" not in capsys.readouterr().out
    assert Page(out.read_text(encoding="utf-8")).sections == page.sections


def test_a_run_of_which_no_picture_was_drawn_yet_is_reported_without_it(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = finished.copied(tmp_path / "project")
    (picture,) = project.home.glob("store/runs/*/loss.png")
    picture.unlink()
    project.enter(monkeypatch)
    run, out = picture.parent.name[:8], tmp_path / "report.html"
    assert main(["report", "--model", f"{run}-00000032", "-o", str(out)]) == 0
    page = Page(out.read_text(encoding="utf-8"))
    assert f"{run}-00000032" in page.sections[""] and page.source.count('src="data:image/png;base64,') == 2
