"""`trace --near`: from a rewritten text to the documents that it is like."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.steps.corpus.decontamination import Contamination, EvaluationNgrams
from pipeline.steps.dedup.dedup import Dedup
from pipeline.steps.recipe_versions import store_of
from tests.pipeline.steps.corpora import ENGINE, TEXTS, StoredRun, as_it_was
from tests.pipeline.steps.lineage.conftest import CORPORA
from tests.pipeline.steps.make import tokenize, tokenizer
from trainer.system.paths import STORE_VARIABLE

Said = Callable[..., str]


def rewritten(text: str, share: float = 0.1) -> str:
    """The text with about this share of its words replaced."""
    chooser = np.random.default_rng(0)
    return " ".join("zebra" if chooser.random() < share else word for word in text.split())


def test_a_rewritten_document_and_its_copy_are_found_with_what_became_of_them(
    trained: StoredRun, said: Said
) -> None:
    (found,) = json.loads(said("trace", "--near", rewritten(TEXTS[2]), "--json"))
    kept, removed, *others = found["documents"]
    if kept["corpus"] == "second":
        kept, removed = removed, kept
    assert (kept["corpus"], removed["corpus"]) == ("first", "second") and found["through"] is None
    for one in (kept, removed):
        assert one["holds"] > 0.6 and one["held"] > 0.6 and 0.45 < one["jaccard"] < 0.75
        assert TEXTS[2].startswith(one["beginning"]) and one["source"] == f"{one['corpus']}.jsonl"
    assert kept["fate"] == "in the training text"
    assert removed["fate"] == f"removed by dedup: exact, for {kept['document']}"
    assert all(one["holds"] + one["held"] <= kept["holds"] + kept["held"] for one in others)
    last = next(one for one in kept["read_by"] if one["checkpoint"].endswith("-00000032"))
    assert 1 <= last["first"] <= last["last"] <= 32 and last["steps"] > 1 and removed["read_by"] == []


def test_a_rewritten_paragraph_of_a_long_document_is_found_with_the_steps_of_a_checkpoint(
    trained: StoredRun, said: Said
) -> None:
    name = f"{trained[1].name[:8]}-00000032"
    long = CORPORA["second"][-2]
    words = long.split()
    paragraph = rewritten(" ".join(words[len(words) // 2 :][:70]))
    (found,) = json.loads(said("trace", "--near", paragraph, "--checkpoint", name, "--json"))
    best = found["documents"][0]
    assert long.startswith(best["beginning"]) and len(words) > 2000
    assert best["holds"] > 0.5 and best["jaccard"] < 0.1
    assert best["steps"] and set(best["steps"]) <= set(range(1, 33)) and "read_by" not in best
    shown = said("trace", "--near", paragraph, "--checkpoint", name)
    assert f"document {best['document']} of second (second.jsonl)" in shown
    assert "in the training text: read at step " in shown and f"has {best['holds']:.0%} of the text" in shown
    assert f"read by {name} at " in said("trace", "--near", paragraph)


def test_an_unrelated_text_is_found_nowhere_and_that_is_an_answer(said: Said) -> None:
    text = (
        "Sing, O goddess, the anger of Achilles son of Peleus, that brought countless ills upon the Achaeans"
    )
    assert said("trace", "--near", text) == (
        "no document in the corpora has 25% of the text, and none has 25% of its own in the text\n"
    )
    assert json.loads(said("trace", "--near", text, "--json")) == [{"through": None, "documents": []}]


def test_fewer_documents_are_shown_on_request_and_only_similar_ones(said: Said, tmp_path: Path) -> None:
    asked = tmp_path / "asked.txt"
    quoted = " ".join(TEXTS[6].split()[50:200])
    asked.write_text(f"{rewritten(TEXTS[2], 0.05)} {quoted}", encoding="utf-8-sig")

    def documents(*options: str) -> list[Any]:
        (found,) = json.loads(said("trace", "--near", str(asked), *options, "--json"))
        return list(found["documents"])

    every = documents("--min-similarity", "0.02")
    assert documents("--min-similarity", "0.02", "--limit", "1") == every[:1]
    assert any(TEXTS[6].startswith(one["beginning"]) for one in every)
    alike = documents("--min-similarity", "0.6")
    assert 2 <= len(alike) < len(every) and all(max(one["holds"], one["held"]) >= 0.6 for one in alike)


def test_what_cannot_be_looked_for_is_refused_in_one_sentence(
    trained: StoredRun, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine until here \xff\xfe")
    text = TEXTS[0][:500]
    for arguments, expected in (
        (["--near", ""], "the text is empty"),
        (["--near", " \n"], "the text is empty"),
        (["--near", "too few words"], "fewer than 10 words"),
        (["--near", str(tmp_path / "missing.txt")], "the name of a file that exists"),
        (["--near", str(tmp_path / "bad.txt")], "is not UTF-8 at byte 16"),
        (["--near", text, "--min-similarity", "0"], "--min-similarity 0.0: must be above 0 and at most 1"),
        (["--near", text, "--min-similarity", "1.5"], "--min-similarity 1.5: must be above 0"),
        (["--near", text, "--limit", "0"], "--limit 0: must be at least 1"),
        (["--near", text, text], "give one of TEXT, --near"),
        (["--near", text, "--count"], "--count: give a TEXT"),
        (["--near", text, "--checkpoint", "nothing"], "is not a checkpoint"),
    ):
        found = said("trace", *arguments)
        assert found.startswith("error: ") and len(found.splitlines()) == 1 and expected in found, found
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "empty"))
    found = said("trace", "--near", text)
    assert (
        "corpora/first/raw has not been made yet: materialize it (for example with the job `pretrain`) first"
        in found
    )
    assert len(found.splitlines()) == 1


def test_documents_that_dedup_did_not_compare_are_searched_like_any_other(
    trained: StoredRun, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a corpus with `dedup: false`, and those that quote an evaluation set."""
    with as_it_was(home := trained[0].root.parent):
        exam = {"name": "exam", "source": {"kind": "files", "paths": ["exam.jsonl"]}}
        (home / "exam.jsonl").write_text(json.dumps({"text": " ".join(TEXTS[5].split()[100:140])}))
        settings = yaml.safe_load((home / "recipe.yaml").read_text()) | {"name": "apart"}
        settings["corpora"][1]["dedup"] = False
        settings["decontamination"] = {"sets": [exam]}
        (home / "apart.yaml").write_text(yaml.safe_dump(settings))
        monkeypatch.setenv(RECIPE_VARIABLE, str(home / "apart.yaml"))
        recipe = load_recipe(home / "apart.yaml")
        store, names = store_of(recipe), recipe.corpus_names
        assert recipe.decontamination
        EvaluationNgrams(recipe.decontamination, recipe.scrubs, recipe.transform_chains).make(store, ENGINE)
        for name in names:
            Contamination(name, recipe.decontamination).make(store, ENGINE)
        Dedup.all_of(recipe)[0].make(store, ENGINE)
        tokenizer(store, ENGINE, recipe.name, names, recipe.tokenizer, recipe.shards.validation_fraction)
        for name in names:
            tokenize(store, ENGINE, name, recipe.shards)
        (found,) = json.loads(said("trace", "--near", rewritten(TEXTS[2]), "--json"))
        both = {one["corpus"]: one["fate"] for one in found["documents"][:2]}
        (quoting,) = json.loads(said("trace", "--near", rewritten(TEXTS[5]), "--limit", "1", "--json"))
    assert both == {"first": "in the training text", "second": "in the training text"}
    (quoted,) = quoting["documents"]
    assert TEXTS[5].startswith(quoted["beginning"])
    assert quoted["fate"] == "removed by dedup: contaminated"
