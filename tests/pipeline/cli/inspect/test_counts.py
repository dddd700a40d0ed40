"""inspect counts, draws documents, and answers what-if questions."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.steps.corpus.quality import Quality
from pipeline.store.parquet import read_table
from pipeline.store.store import Store
from tests.pipeline.cli.inspect.conftest import SENTENCES, STRICT, Inspect
from tests.pipeline.cli.inspect.test_inspect import counted, entries, stored, table, verdicts


def test_shares_of_documents_and_bytes_add_up(many: Path, inspect_many: Inspect) -> None:
    rows = table(inspect_many()[1])
    for corpus in ("talks", "mails"):
        expected = counted(many, corpus, verdicts(many, corpus))
        size = sum(len(text.encode()) for *_, text in stored(many, corpus))
        shown = {
            verdict: (documents, of_bytes)
            for name, verdict, documents, _, of_bytes, *_ in rows
            if name == corpus
        }
        assert len(shown) > 2
        assert shown == {
            verdict: (documents, f"{int(amount.replace(',', '')) / size:.1%}")
            for verdict, (documents, amount) in expected.items()
        }
        for share in (3, 4):
            assert sum(float(row[share][:-1]) for row in rows if row[0] == corpus) == pytest.approx(
                100, abs=0.2
            )


def test_of_each_language_it_counts_what_is_kept_in_documents_and_bytes(
    many: Path, inspect_many: Inspect
) -> None:
    rules = verdicts(many, "talks")
    sizes = {id_: len(text.encode()) for id_, _, text in stored(many, "talks")}
    english = {id_ for id_, _, text in stored(many, "talks") if SENTENCES["en"] in text}
    kept = {id_ for id_, rule in rules.items() if rule is None}
    of_bytes = sum(sizes[id_] for id_ in kept) / sum(sizes[id_] for id_ in english)
    assert kept < english
    assert table(inspect_many("counts", "--by", "language", "--corpus", "talks")[1]) == [
        ["talks", "en", "48", str(len(kept)), f"{len(kept) / 48:.1%}", f"{of_bytes:.1%}"],
        ["talks", "de", "12", "0", "0.0%", "0.0%"],
    ]


def test_documents_are_drawn_from_all_parts_by_the_seed(many: Path, inspect_many: Inspect) -> None:
    place = {id_: (corpus, part) for corpus in ("talks", "mails") for id_, part, _ in stored(many, corpus)}
    rules = verdicts(many, "talks") | verdicts(many, "mails")
    rejected = {id_ for id_, rule in rules.items() if rule == "min_words"}
    assert len({place[id_] for id_ in rejected}) > 4

    def drawn(seed: int, what: str = "min_words", limit: int = 6) -> list[str]:
        return entries(inspect_many("documents", what, "--seed", str(seed), "--limit", str(limit))[1])

    assert drawn(1) == drawn(1)
    ids = [drawn(seed) for seed in range(30)]
    assert len({frozenset(one) for one in ids}) == 30
    assert {id_ for one in ids for id_ in one[:6]} == rejected
    for one in ids:
        assert len({*one}) == len(one) == 9
        assert all(rules[id_] == ("min_words" if n < 6 else None) for n, id_ in enumerate(one))
    assert max(len({place[id_] for id_ in one[:6]}) for one in ids) > 3
    kept = drawn(0, "kept", 1000)
    assert sorted(kept) == sorted(id_ for id_, rule in rules.items() if rule is None)


def test_kept_documents_are_shown_with_every_signal_that_judges_them(
    many: Path, inspect_many: Inspect
) -> None:
    said = inspect_many("documents", "kept", "--limit", "1")[1]
    (id_,) = entries(said)
    (text,) = [text for corpus in ("talks", "mails") for one, _, text in stored(many, corpus) if one == id_]
    assert f"\n    {text[:400]}\n" in said
    assert f"\nwords = {len(text.split())}, mean_word_length = " in said
    assert re.findall(r"(\w+)\s=", said) == [
        "words",
        "mean_word_length",
        "special_character_share",
        "unique_word_share",
        "language",
        "language_confidence",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"min_words": 20},
        STRICT,
        {"languages": ["en", "de"], "min_words": 12},
        {"languages": None},
        {"min_words": None, "max_words": 40},
    ],
    ids=str,
)
def test_what_if_counts_what_the_stage_would_reject(
    many: Path, inspect_many: Inspect, changes: dict[str, object]
) -> None:
    given = [f"{name}={json.dumps(value)}" for name, value in changes.items()]
    status, said = inspect_many("what-if", *given, "--limit", "1000")
    assert status == 0
    lost, gained = set(), set()
    for corpus in ("talks", "mails"):
        now, then = verdicts(many, corpus), verdicts(many, corpus, **changes)
        assert now != then
        amounts = counted(many, corpus, now), counted(many, corpus, then)
        shown = {verdict: ((a, b), (c, d)) for name, verdict, a, b, c, d in table(said) if name == corpus}
        assert shown == {
            verdict: tuple(one.get(verdict, ("0", "0")) for one in amounts)
            for verdict in {*amounts[0], *amounts[1]}
        }
        lost |= {(id_, then[id_]) for id_ in now if now[id_] is None and then[id_]}
        gained |= {(id_, now[id_]) for id_ in now if now[id_] and then[id_] is None}
    assert lost | gained
    changed = said.split("kept now, rejected then:")[1].split("kept then, rejected now:")
    for part, expected in zip(changed, (lost, gained), strict=True):
        assert {*re.findall(r"^    \w+ (\w{32}) (\w+)$", part, flags=re.MULTILINE)} == expected


def test_a_what_if_changes_the_rules_that_each_corpus_has_for_itself(
    many: Path, inspect_many: Inspect
) -> None:
    """Before and after, as for a corpus with the same settings from the recipe."""
    _, expected = inspect_many("what-if", "min_words=20")
    recipe = (many / "recipe.yaml").read_text()
    try:
        written = yaml.safe_load(recipe)
        own = {"quality": written["quality"] | {"profile": "plain"}}
        written |= {"quality": "none", "corpora": [one | own for one in written["corpora"]]}
        (many / "recipe.yaml").write_text(yaml.safe_dump(written))
        assert inspect_many("what-if", "min_words=20") == (0, expected)
        assert inspect_many("counts", "--by", "language")[0] == 0
    finally:
        (many / "recipe.yaml").write_text(recipe)


def test_a_what_if_counts_without_reading_text(
    many: Path,
    inspect_many: Inspect,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    asked = ("what-if", "min_words=45", "--limit=1")
    status, before = inspect_many(*asked)
    counts = before.partition("\n    ")[0]
    assert status == 0
    assert "kept now, rejected then:\ncorpus" in counts
    shutil.copytree(many / "store", tmp_path / "store")
    for file in (tmp_path / "store" / "corpora").glob("*/scrubbed/*/documents/*.parquet"):
        file.write_bytes(bytes(file.stat().st_size))
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    assert main(["inspect", *asked]) == 2  # at the document that is shown next
    assert capsys.readouterr().out == f"{counts}\n"


def test_a_what_if_judges_each_part_once(inspect_many: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[tuple[str, str]] = []
    judge = Quality.judged_again

    def counted(self: Quality, store: Store, part: str) -> Any:
        judged.append((self.corpus, part))
        return judge(self, store, part)

    monkeypatch.setattr(Quality, "judged_again", counted)
    assert inspect_many("what-if", "min_words=45")[0] == 0
    assert len(judged) == len({*judged}) > 2


def test_a_what_if_says_how_each_document_begins(many: Path, inspect_many: Inspect) -> None:
    _, said = inspect_many("what-if", "min_words=20", "--limit", "1000")
    texts = {
        row["id"]: row["text"]
        for file in (many / "store" / "corpora").glob("*/scrubbed/*/documents/*.parquet")
        for row in read_table(file).to_pylist()
    }
    listed = re.findall(r"^    \w+ (\w{32}) \w+\n        (.*)$", said, flags=re.MULTILINE)
    assert listed
    for id_, shown in listed:
        assert json.loads(shown).removesuffix("...") == texts[id_][:80]
