"""`python -m pipeline inspect`: what was removed, why, how it begins, and what other rules would remove."""

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.cli.inspect import VIEWS
from pipeline.recipe.recipe import RECIPES
from pipeline.sources.documents import document_id, own_id
from pipeline.sources.files import FilesConfig
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES, QualityParams
from pipeline.store import keys
from pipeline.store.parquet import read_table
from pipeline.store.store import Store
from tests.pipeline.cli.inspect.conftest import ENGINE, JUDGED, PLAIN, STRICT, TEXT, Inspect, scrubbed
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub
from tests.rows import jsonl
from tests.traces import bytes_with


def named(corpus: str, name: str) -> str:
    return f"{corpus} {document_id(corpus, own_id(name))}"


def test_a_rule_shows_its_documents_with_the_signal_the_threshold_and_the_scrubbed_text(
    inspect: Inspect,
) -> None:
    status, said = inspect("documents", "min_words")
    assert status == 0
    entries = said.strip().split("\n\n")
    assert entries == [
        f"{named('notes', 'short')}\nwords = 2, min_words = 128\n    Ask "
        f"[EMAIL].\N{REPLACEMENT CHARACTER}[2J",
        f"{named('letters', 'brief')}\nwords = 2, min_words = 128\n    Dear all.",
        "kept, at random:",
        entries[-1],
    ]
    assert re.fullmatch(r"\w+ \w{32}\nwords = 20[02], min_words = 128\n    word0 word1 .*", entries[-1])


def test_without_a_rule_it_counts_what_each_rule_of_each_corpus_rejected(inspect: Inspect) -> None:
    short = len("Ask [EMAIL].\x1b[2J")
    of_notes = short / (short + len(TEXT) + 9)
    of_letters = 9 / (9 + 2 * len(TEXT) + 9)
    shares = {"notes": ("50.0%", f"{of_notes:.1%}"), "letters": ("33.3%", f"{of_letters:.1%}")}
    status, said = inspect()
    lines = [line.split() for line in said.splitlines()]
    assert (status, lines[0]) == (0, ["corpus", "verdict", "documents", "share", "of", "bytes"])
    assert lines[1:] == [
        ["notes", "kept", "1", "50.0%", f"{1 - of_notes:.1%}"],
        ["notes", "min_words", "1", *shares["notes"]],
        ["letters", "kept", "2", "66.7%", f"{1 - of_letters:.1%}"],
        ["letters", "min_words", "1", *shares["letters"]],
    ]
    assert [line.split() for line in inspect("counts", "--corpus", "notes")[1].splitlines()] == lines[:3]
    assert inspect("counts") == (0, said)
    assert inspect("--corpus", "notes") == inspect("counts", "--corpus", "notes")


def test_a_document_in_another_language_is_shown_with_what_was_detected(
    project: Path, inspect: Inspect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = yaml.safe_load((project / "recipe.yaml").read_text())
    recipe["quality"] = {"profile": "none", "languages": ["en", "fr"]}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    store = Store(tmp_path / "store")
    texts = {
        "en": "The committee met again to hear what the engineers had found.",
        "de": "Der Ausschuss hörte noch einmal, was die Leute gefunden hatten.",
    }
    scrubbed(store, tmp_path / "notes.jsonl", *({"id": name, "text": text} for name, text in texts.items()))
    judge(store, ENGINE, "notes", PROFILES["none"].model_copy(update={"languages": ("en", "fr")}))
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    status, said = inspect("documents", "language", "--corpus", "notes")
    assert status == 0
    assert said.startswith(f"{named('notes', 'de')}\nlanguage = de, language_confidence = ")
    assert f", languages = en fr, min_language_confidence = 0.5\n    {texts['de']}\n" in said


def test_by_language_a_threshold_is_said_to_be_that_of_english_beside_the_language(
    project: Path, inspect: Inspect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = yaml.safe_load((project / "recipe.yaml").read_text())
    changes = {"by_language": True, "max_avg_word_length": 10.0}
    recipe["quality"] = {"profile": "none"} | changes
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    store = Store(tmp_path / "store")
    words = "Donaudampfschifffahrtsgesellschaft und Versicherungsvertreter der Bezirkshauptmannschaft. "
    texts = {"en": "The committee met again to hear what the engineers had found.", "de": words * 3}
    scrubbed(store, tmp_path / "notes.jsonl", *({"id": name, "text": text} for name, text in texts.items()))
    judge(store, ENGINE, "notes", PROFILES["none"].model_copy(update=changes))
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    status, said = inspect("documents", "max_avg_word_length", "--corpus", "notes", "--limit", "1")
    assert status == 0
    assert said.startswith(f"{named('notes', 'de')}\navg_word_length = ")
    assert ", max_avg_word_length = 10.0 in English, language = de\n" in said


def test_one_corpus_and_so_many_documents(inspect: Inspect) -> None:
    assert named("letters", "brief") in inspect("documents", "min_words", "--corpus", "letters")[1]
    for narrower in (("--corpus", "letters"), ("--limit", "1")):
        rejected, kept = inspect("documents", "min_words", *narrower)[1].split("kept, at random:")
        assert rejected.count("words = 2, min_words") == kept.count(", min_words") == 1


@pytest.mark.parametrize(("reason", "removed"), [("exact", "copy"), ("near", "almost")])
def test_a_duplicate_is_shown_beside_the_document_that_stays(
    reason: str, removed: str, inspect: Inspect
) -> None:
    status, said = inspect("documents", reason)
    assert status == 0
    assert said.startswith(f"removed {named('letters', removed)}: {reason}, Jaccard ")
    assert f"\nkept {named('notes', 'long')}, which stands for 3 documents\n    word0 word1" in said
    assert said.count("removed") == 1


def test_a_rule_that_rejected_nothing_says_so(inspect: Inspect) -> None:
    assert inspect("documents", "max_words") == (0, "max_words: no document of notes, letters\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["documents", "too_dull"], "error: RULE: unknown 'too_dull'; choose from language, min_words"),
        (["documents", "contaminated"], "error: contaminated: nothing was searched for: set `decontamin"),
        (
            ["documents", "min_words", "--corpus", "diaries"],
            "error: --corpus: unknown 'diaries'; choose from notes, letters",
        ),
        (["documents", "min_words", "--limit", "0"], "error: --limit 0"),
        (["documents", "min_words", "--seed", "-1"], "error: --seed -1: must be at least 0"),
        (
            ["counts", "--by", "language"],
            "error: --by language: no language was detected: set `quality.by_language`",
        ),
        (
            ["what-if", "min_wordz=20"],
            "error: what-if: quality: unknown key 'min_wordz': did you mean 'min_words'?\n",
        ),
        (["what-if", "min_words"], "error: what-if: 'min_words' has no value: write min_words=VALUE\n"),
        (["what-if", "min_words=-1"], "error: what-if: quality.min_words: must be at least 0, not -1\n"),
        (["what-if", "languages=[en]"], "error: what-if: this needs languages or filters that have not "),
        (["against", "base"], "error: against base: compares it with itself"),
        (["against", "strict"], "error: {recipe}: no variant is named 'strict'; choose from base"),
    ],
)
def test_a_mistake_is_named(arguments: list[str], says: str, inspect: Inspect) -> None:
    status, said = inspect(*arguments)
    assert status == 2
    assert said.startswith(says.format(recipe=os.environ["GROUNDWORK_RECIPE"]))


def test_an_unknown_rule_is_answered_with_the_command_for_the_nearest(inspect: Inspect) -> None:
    status, said = inspect("documents", "min_wordz")
    assert (status, said.count("\n")) == (2, 1)
    assert said.endswith(", as in `python -m pipeline inspect documents min_words`\n")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["min_words"], "documents min_words"),
        (["min_words", "--corpus", "notes", "--limit", "3"], "documents min_words --corpus notes --limit 3"),
        (["--corpus", "notes", "min_words"], "documents min_words --corpus notes"),
        (["--seed", "1", "documents", "kept"], "documents kept --seed 1"),
        (["counts", "Long words"], "documents 'Long words'"),
        (
            ["--what-if", "min_words=20", "--what-if=filters=[{name: a}]"],
            "what-if min_words=20 'filters=[{name: a}]'",
        ),
        (["--against", "strict", "--variant", "lax"], "against strict --variant lax"),
        (["--limit", "3"], "documents RULE --limit 3"),
    ],
)
def test_a_question_without_its_subcommand_is_answered_with_the_command_to_write(
    arguments: list[str], meant: str, inspect: Inspect
) -> None:
    expected = f"first: write `python -m pipeline inspect {meant}`\n"
    status, said = inspect(*arguments)
    assert (status, said) == (2, f"error: inspect: name counts, documents, what-if or against {expected}")


def test_what_pages_and_messages_tell_users_to_write_names_a_subcommand() -> None:
    root = Path(__file__).parents[4]
    files = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "pipeline").rglob("*.*")]
    told = [
        (file.name, word)
        for file in files
        if file.name != "CHANGELOG.md" and file.suffix in (".md", ".py", ".yaml")
        for word in re.findall(r"(?:python -m pipeline |`)inspect +([^\s`#]+)", file.read_text())
    ]
    assert len(told) > 10
    assert [one for one in told if one[1] not in VIEWS] == []


def test_text_newer_than_the_verdicts_is_not_shown_with_them(
    project: Path, inspect: Inspect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(project / "recipe.yaml", tmp_path)
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    store = Store(tmp_path / "store")
    for words in ("one", "two"):
        scrubbed(store, tmp_path / "notes.jsonl", {"id": "a", "text": f"{words} {TEXT}"})
        if words == "one":
            judge(store, ENGINE, "notes", PLAIN)
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    status, said = inspect("documents", "min_words", "--corpus", "notes")
    assert (status, said) == (
        2,
        "error: corpora/notes/signals has not been made for this recipe yet, the newest version has other "
        "inputs (corpora/notes/scrubbed): materialize corpora/notes/quality (for example with the job "
        "`pretrain`) first\n",
    )


def verdicts(many: Path, corpus: str, **changes: object) -> dict[str, str | None]:
    """The rule, or None, of each document of a corpus, from the quality stage with these settings."""
    store = Store(many / "store")
    params = QualityParams.model_validate(JUDGED.model_dump() | changes)
    rows = [
        row
        for file in judge(store, ENGINE, corpus, params).files("verdicts")
        for row in read_table(file).to_pylist()
    ]
    return {row["id"]: row["rule"] for row in rows}


def stored(many: Path, corpus: str) -> list[tuple[str, str, str]]:
    """Id, part and scrubbed text of each document of a corpus."""
    version = Store(many / "store").current(keys.scrubbed(corpus))
    return [
        (row["id"], part.name, row["text"])
        for part in version.parts
        for row in read_table(version.file(part, "documents")).to_pylist()
    ]


def table(said: str) -> list[list[str]]:
    """The cells of the rows of a table, which ends at an empty line."""
    return [line.split() for line in said.partition("\n\n")[0].splitlines()[1:]]


def entries(said: str) -> list[str]:
    """The ids of the documents that are shown."""
    return re.findall(r"^\s*(?:talks|mails) (\w{32})\b", said, flags=re.MULTILINE)


def counted(many: Path, corpus: str, rules: dict[str, str | None]) -> dict[str, tuple[str, str]]:
    """The documents and bytes of each verdict, as they are printed."""
    sizes = {id_: len(text.encode()) for id_, _, text in stored(many, corpus)}
    return {
        rule or "kept": (f"{len(found):,}", f"{sum(sizes[id_] for id_ in found):,}")
        for rule in {*rules.values()}
        for found in [[id_ for id_, one in rules.items() if one == rule]]
    }


def test_against_a_variant_shows_what_only_one_of_the_two_keeps(many: Path, inspect_many: Inspect) -> None:
    ours, theirs = verdicts(many, "talks"), verdicts(many, "talks", **STRICT)
    lost = {id_: theirs[id_] for id_ in ours if ours[id_] is None and theirs[id_]}
    assert len({*lost.values()}) == 2
    status, said = inspect_many("against", "strict", "--corpus", "talks", "--limit", "1000")
    assert status == 0
    only_ours, only_theirs = said.split("kept base, rejected strict:")[1].split("kept strict, rejected base:")
    expected = counted(many, "talks", lost)
    rows = [["talks", rule, *amount] for rule, amount in expected.items()]
    assert table(only_ours)[1:] == sorted(rows, key=lambda row: -int(row[2]))
    assert sorted(entries(only_ours)) == sorted(lost)
    for id_, _, text in stored(many, "talks"):
        if lost.get(id_) == "min_words":
            shown = f"talks {id_}\nwords = {len(text.split())}, min_words = 45\n    {text[:400]}\n"
            assert shown in only_ours
    assert only_theirs == "\nno document\n"
    back = inspect_many("against", "base", "--variant", "strict", "--corpus", "talks")[1]
    assert table(back.split("kept base, rejected strict:")[1]) == table(only_ours)


@pytest.mark.parametrize(
    ("variant", "corpus", "says"),
    [
        (
            "unmade",
            "mails",
            "error: against unmade: corpora/mails/quality has not been made for this recipe yet, .* first: "
            "`python -m pipeline variants run unmade --job corpus`$",
        ),
        (
            "lax",
            "talks",
            "error: against lax: the scrubbed text of talks differs, so the verdicts cannot be compared: ",
        ),
    ],
)
def test_verdicts_that_cannot_be_compared_are_refused(
    variant: str, corpus: str, says: str, inspect_many: Inspect
) -> None:
    status, said = inspect_many("against", variant, "--corpus", corpus)
    assert status == 2
    assert re.match(says, said)


def test_documents_are_named_by_the_titles_that_are_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scrubbed, and gone from the store once the document is."""
    titles = ["Graph theory", "Graphs again", "Mail of jo.doe@example.org"]
    rows = [
        {"title": title, "text": text} for title, text in zip(titles, (TEXT, TEXT, "Short."), strict=True)
    ]
    jsonl(tmp_path / "wiki.jsonl", *rows)
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    source = {"kind": "files", "paths": ["wiki.jsonl"], "id_column": "title"}
    recipe |= {"corpora": [{"name": "wiki", "source": source}], "raw": {"part_bytes": 1_000_000}}
    recipe |= {"quality": "plain", "scrub": {}, "dedup": {}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    store = Store(tmp_path / "store")
    config = FilesConfig(paths=("wiki.jsonl",), id_column="title").anchored(tmp_path)
    collect(store, ENGINE, "wiki", config, part_bytes=1_000_000)
    scrub(store, ENGINE, "wiki", PiiParams())
    judge(store, ENGINE, "wiki", PLAIN)
    deduplicate(store, ENGINE, ["wiki"], DedupParams())

    def said(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    mail = named("wiki", titles[2])
    assert f'{mail} "Mail of [EMAIL]"\nwords = 1' in said("inspect", "documents", "min_words")
    pair = said("inspect", "documents", "exact")
    gone, stays = sorted(titles[:2], key=lambda one: f"removed {named('wiki', one)}" not in pair)
    assert f'removed {named("wiki", gone)} "{gone}": exact' in pair
    assert f'kept {named("wiki", stays)} "{stays}", which stands for 2' in pair
    said("forget", titles[2], "--reason", "asked for", "--yes")
    said("gc", "--forgotten")
    assert not bytes_with(tmp_path / "store", b"Mail of")


def test_a_section_is_judged_with_other_settings_and_its_messages_are_shown_as_they_were_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inspect: Inspect
) -> None:
    """One threshold brings no others along: no rule applies to conversations by itself."""
    source = {"kind": "files", "paths": [str(tmp_path / "talks.jsonl")], "format": "chat"}
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    recipe |= {"raw": {"part_bytes": 1_000_000}, "scrub": {}, "dedup": {}, "tokenizer": {"chat": True}}
    recipe["post_training"] = {"sft": {"corpora": [{"name": "talks", "source": source}]}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    said = [f"{'word ' * number}word?" for number in range(10)]
    rows = [{"prompt": one, "completion": "Yes.", "id": str(number)} for number, one in enumerate(said)]
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    store, conversations = Store(tmp_path / "store"), jsonl(tmp_path / "talks.jsonl", *rows)
    collect(store, ENGINE, "talks", FilesConfig(paths=(str(conversations),), format="chat"), 1_000_000)
    scrub(store, ENGINE, "talks")
    judge(store, ENGINE, "talks", PROFILES["none"])
    deduplicate(store, ENGINE, ["talks"], DedupParams())
    status, shown = inspect("what-if", "min_doc_words=9", "--variant", "sft")
    assert status == 0, shown
    assert {(verdict, then) for name, verdict, _, _, then, _ in table(shown) if name == "talks"} == {
        ("kept", "5"),
        ("min_doc_words", "5"),
    }
    assert '"user: word?\\nassistant: Yes."' in shown
    status, shown = inspect("documents", "kept", "--variant", "sft", "--limit", "10")
    assert status == 0 and "    user: word?\n    assistant: Yes.\n" in shown
    expected = "error: against sft: has other corpora than base: name a variant of base\n"
    assert inspect("against", "sft") == (2, expected)
