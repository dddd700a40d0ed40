"""`forget` points at the same text under other ids, and at what models are measured on."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.recipe.evaluation import Decontamination, EvaluationText
from pipeline.sources.documents import document_id, own_id
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.steps.corpus.decontamination import Contamination, EvaluationNgrams
from pipeline.steps.corpus.evaluation_texts import EvaluationWindows
from pipeline.steps.forget.copies import ALIKE, PASSAGE, SAME, Copy, copies
from pipeline.store import keys
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS, prepare
from tests.pipeline.steps.make import deduplicate
from tests.traces import bytes_with
from trainer.system.paths import STORE_VARIABLE

QUESTION = "Ask how many of the 48 clips that Natalia sold in April were returned to the shop by her friends."
TEXT = f"{TEXTS[0][:3000]} {QUESTION}"
CORPORA = {
    "first": {"mine": TEXT, "other": TEXTS[1]},
    "second": {"same": TEXT, "near": f"{TEXT} indeed", "no": TEXTS[2]},
    "left_out": {"unseen": TEXT},
}


def document(corpus: str, name: str) -> str:
    return document_id(corpus, own_id(name))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A text that two corpora and an evaluation text have, and that quotes an evaluation set."""
    store = Store(tmp_path / "store")
    for corpus, texts in CORPORA.items():
        prepare(store, tmp_path / f"{corpus}.jsonl", list(texts.values()), list(texts))

    def source(name: str, *texts: str) -> dict[str, Any]:
        rows = (json.dumps({"id": f"{name} {row}", "text": text}) + "\n" for row, text in enumerate(texts))
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
        return {"kind": "files", "paths": [str(tmp_path / f"{name}.jsonl")]}

    held = EvaluationText.model_validate({"name": "held", "source": source("held", TEXTS[3], f"{TEXT}\n")})
    EvaluationWindows(held).make(store, ENGINE)
    exam = {"sets": [{"name": "exam", "source": source("exam", QUESTION)}], "action": "report"}
    sets = Decontamination.model_validate(exam)
    EvaluationNgrams(sets, [PiiParams()], ()).make(store, ENGINE)
    Contamination("first", sets).make(store, ENGINE)
    deduplicate(store, ENGINE, list(CORPORA), DedupParams(), apart=["left_out"])
    return store


WANTED = [
    Copy("corpus second", ALIKE, document("second", "near")),
    Copy("corpus second", SAME, document("second", "same")),
    Copy("evaluation set exam", PASSAGE),
    Copy("evaluation text held", SAME, document("text.held", "held 1")),
]


def test_copies_are_found_in_corpora_and_in_what_models_are_measured_on(store: Store) -> None:
    assert copies(store, {"first": {document("first", "mine")}}) == WANTED
    assert copies(store, {"first": {document("first", "other")}}) == []
    both = {"first": {document("first", "mine")}, "second": {document("second", "same")}}
    assert copies(store, both) == [WANTED[0], *WANTED[2:]]
    # from the duplicate to the one that dedup kept for it
    found = copies(store, {"second": {document("second", "near")}})
    assert Copy("corpus first", ALIKE, document("first", "mine")) in found


def test_forget_and_its_certificate_point_at_copies_without_their_text(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert main(["forget", "mine", "--reason", "asked for", "--yes"]) == 0
    printed = capsys.readouterr().out.splitlines()
    stays = "it stays, unless it is removed, too"
    assert f"a passage is also in evaluation set exam: {stays}" in printed
    evaluated = WANTED[-1]
    assert f"the same text is also in evaluation text held, as {evaluated.document}: {stays}" in printed
    assert sum(document("second", "same") in line for line in printed) == 1  # it comes back
    (folder,) = store.root.glob(f"{keys.FORGOTTEN}/*")
    facts = json.loads((folder / "certificate.json").read_text())["copies under other ids"]
    assert facts == {
        "corpus second": {ALIKE: 1, SAME: 1},
        "evaluation set exam": {PASSAGE: 1},
        "evaluation text held": {SAME: 1},
    }
    page = (folder / "certificate.html").read_text()
    assert "there then was nearly the same text in corpus second, the same text in corpus second," in page
    ids = [one.document.encode() for one in WANTED if one.document]
    assert not bytes_with(folder, TEXT[100:160].encode(), *ids)
