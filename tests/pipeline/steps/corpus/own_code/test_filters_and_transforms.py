"""The user's own filters and transforms: what a change makes again, and what a failure costs."""

import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.cli import main
from pipeline.plugins import loading
from pipeline.plugins.loading import PluginError
from pipeline.plugins.settings import FilterParams, TransformParams
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RecipeError
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.steps.corpus.quality import reasons
from pipeline.store import keys
from pipeline.store.engines.local import Engine, LocalEngine
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.plugins.code import write
from tests.pipeline.steps.corpora import ENGINE
from tests.pipeline.steps.corpus.own_code.conftest import MODULE, source
from tests.pipeline.steps.make import collect, judge, scrub, transform
from tests.rows import stored_rows


def a_filter(name: str, version: str = "1", share: float = 0.01, **params: object) -> FilterParams:
    return FilterParams(python=f"own:{name}", version=version, params=params, max_failed_share=share)


def judged(store: Store, *filters: FilterParams, engine: Engine = ENGINE) -> Version:
    return judge(store, engine, "notes", PROFILES["none"].model_copy(update={"filters": filters}))


def rules(version: Version) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for path in version.files("verdicts"):
        for rule in pq.read_table(path).column("rule").to_pylist():
            found[rule] = found.get(rule, 0) + 1
    return found


def files_of(version: Version) -> dict[str, bytes]:
    return {
        path.relative_to(version.path).as_posix(): path.read_bytes()
        for path in sorted(version.path.rglob("*.parquet"))
    }


def test_filters_come_after_the_rules_in_their_order_and_count_like_them(store: Store) -> None:
    params = PROFILES["none"].model_copy(
        update={"min_doc_words": 500, "filters": (a_filter("even"), a_filter("Long", least=8000))}
    )
    verdicts = judge(store, ENGINE, "notes", params)
    counts = verdicts.counts
    found = rules(verdicts)
    assert found == {
        None: counts["kept"],
        **{name: counts[f"rejected/{name}"] for name in ("min_doc_words", "even", "Long")},
    }
    assert counts["kept"] + counts["rejected"] == counts["documents"] == 30
    assert {reason.rule for reason in reasons(verdicts)} == found.keys()
    rows = stored_rows(verdicts, "verdicts")
    assert {row["reason"] for row in rows if row["rule"] == "even"} == {"odd"}


def test_a_new_version_runs_that_filter_alone_and_a_new_threshold_none(
    store: Store, calls: Callable[[], int]
) -> None:
    judged(store, a_filter("even"), a_filter("Long"))
    assert calls() > 30
    again = judged(store, a_filter("even"), a_filter("Long"))
    assert (again.reused, calls()) == (True, 0)
    judged(store, a_filter("even", version="2"), a_filter("Long"))
    assert calls() == 30
    before = judged(store, a_filter("even", version="2", of=3), a_filter("Long"))
    assert calls() == 30
    after = judged(store, a_filter("even", version="2", of=3), a_filter("Long", least=8000))
    assert (calls(), after.counts["kept"] < before.counts["kept"]) == (0, True)


def test_one_process_and_several_write_the_same_bytes(store: Store, tmp_path: Path) -> None:
    own = (a_filter("even"), a_filter("Long", least=5000), a_filter("fails_on", share=1, numbers=[3, 7]))
    one = judged(store, *own)
    shout = TransformParams(python="own:shout", version="1", params={"fails_on": [5]}, max_failed_share=1)
    made = {
        key: files_of(store.current(key)) for key in (keys.quality("notes"), keys.filtered("notes", "even"))
    }
    transformed = files_of(transform(store, ENGINE, "notes", [shout]))
    several = LocalEngine(workers=2, processes_pay_above=0)
    other = Store(tmp_path / "other")
    collect(other, several, "notes", source(), 40_000)
    scrub(other, several, "notes", PiiParams())
    assert judged(other, *own, engine=several).data_version == one.data_version
    assert {key: files_of(other.current(key)) for key in made} == made
    assert files_of(transform(other, several, "notes", [shout])) == transformed
    several.close()


def _judge_slowly(root: Path, until: int) -> None:
    judged(Store(root), a_filter("slow", until=until))


def test_a_filter_that_is_killed_resumes_after_its_last_part(store: Store, calls: Callable[[], int]) -> None:
    path = Path(os.fspath(store.root.parent / "calls"))
    path.write_text("")
    ENGINE.close()  # whose worker is no child's
    child = multiprocessing.get_context("fork").Process(target=_judge_slowly, args=(store.root, 20))
    child.start()
    deadline = time.monotonic() + 60
    while len(path.read_text().splitlines()) <= 20:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert calls() == 21
    assert not [*store.newest_first(keys.filtered("notes", "slow"))]
    Path(f"{path}.go").touch()
    judged(store, a_filter("slow", until=20))
    assert 0 < calls() < 30


def test_a_document_that_a_filter_fails_on_is_set_aside_and_listed(store: Store) -> None:
    verdicts = judged(store, a_filter("fails_on", share=0.1, numbers=[4, 9]))
    assert rules(verdicts) == {None: 28, "fails_on.error": 2}
    measured = store.current(keys.filtered("notes", "fails_on"))
    assert measured.counts["failed"] == measured.counts["failed/fails_on"] == 2
    rows = stored_rows(measured, "failures")
    assert [(row["name"], row["error"]) for row in rows] == [("fails_on", "ValueError")] * 2
    assert all(row["place"].startswith("own.py, line ") for row in rows)
    assert all(len(row["message"]) < 60 for row in rows)


def test_more_failures_than_allowed_fail_the_run_and_correct_code_makes_only_those_parts(
    store: Store, calls: Callable[[], int], tmp_path: Path
) -> None:
    with pytest.raises(
        PluginError,
        match=r"own:fails_on failed on 1 of 30 documents of corpus 'notes'; max_failed_share allows 1\.00%\. "
        r"The first is document [0-9a-f]{32}: ValueError: .*\(own\.py, line \d+\)\. Correct the code",
    ):
        judged(store, a_filter("fails_on", numbers=[4]))
    assert not [*store.newest_first(keys.filtered("notes", "fails_on"))]
    write(tmp_path, "own", MODULE.replace("raise ValueError(document.text)", "called()"))
    loading.load.cache_clear()
    ENGINE.close()  # as a run that ends
    judged(store, a_filter("fails_on", numbers=[4]))
    assert calls() == 1
    assert store.current(keys.filtered("notes", "fails_on")).counts["failed"] == 0


def test_transforms_come_before_scrubbing_and_leave_out_what_they_fail_on(store: Store) -> None:
    raw = store.current(keys.raw("notes"))
    shout = TransformParams(python="own:shout", version="1", params={"fails_on": [2]}, max_failed_share=0.1)
    same = TransformParams(python="own:same", version="1")
    version = transform(store, ENGINE, "notes", [shout, same])
    assert (version.counts["documents"], version.counts["failed"]) == (29, 1)
    assert version.counts["changed"] == version.counts["changed/shout"] == 29
    assert version.counts["changed/same"] == 0
    assert version.manifest["inputs"] == {raw.key: raw.data_version}
    scrubbed = scrub(store, ENGINE, "notes", PiiParams(), "corpora/notes/transformed")
    assert scrubbed.counts["documents"] == 29
    text = pq.read_table(scrubbed.files("documents")[0]).column("text")[0].as_py()
    assert text.upper() == text


def test_transforms_that_fail_on_every_document_are_an_error_whatever_is_allowed(store: Store) -> None:
    shout = TransformParams(
        python="own:shout", version="1", params={"fails_on": list(range(30))}, max_failed_share=1
    )
    with pytest.raises(PluginError, match="the transforms failed on every document of corpus 'notes'"):
        transform(store, ENGINE, "notes", [shout])


def test_a_transform_of_other_corpora_changes_nothing_here(store: Store) -> None:
    elsewhere = TransformParams(python="own:shout", version="1", corpora=("other",))
    version = transform(store, ENGINE, "notes", [elsewhere, TransformParams(python="own:same", version="1")])
    assert version.counts["changed"] == 0


def test_inspect_shows_reasons_signals_and_errors(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [a_filter("fails_on", share=1, numbers=[4]), a_filter("even"), a_filter("Long", least=5000)]
    recipe = {
        "name": "own",
        "corpora": [{"name": "notes", "source": source().model_dump()}],
        "raw": {"part_bytes": 40_000},
        "quality": {"profile": "none", "filters": [one.model_dump() for one in own]},
        "training": TRAINING,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    judged(store, *own)

    def shown(*arguments: str) -> str:
        assert main(["inspect", *arguments]) == 0
        return capsys.readouterr().out

    assert [line.split()[1] for line in shown().splitlines()[1:]][:2] == ["kept", "even"]
    assert "\nodd\n" in shown("documents", "even")
    assert re.search(r"\nlength = \d+, least = 5000\n", shown("documents", "Long"))
    assert re.search(r"\nValueError: .*\(own\.py, line \d+\)\n", shown("documents", "fails_on.error"))
    rejected, kept = shown("documents", "Long").split("kept, at random:")
    assert all(int(length) < 5000 for length in re.findall(r"length = (\d+)", rejected))
    assert all(int(length) >= 5000 for length in re.findall(r"length = (\d+)", kept))
    assert re.search(r"\nlength = \d+, least = 5000\n", kept)
    table = shown("what-if", "min_words=500").partition("\n\n")[0].splitlines()[1:]
    then = {rule: documents for _, rule, _, _, documents, _ in map(str.split, table) if documents != "0"}
    stricter = PROFILES["none"].model_copy(update={"filters": tuple(own), "min_words": 500})
    again = reasons(judge(store, ENGINE, "notes", stricter))
    assert then == {reason.rule or "kept": str(reason.documents) for reason in again}
    assert then.keys() >= {"min_words", "even", "Long"}
    assert main(["inspect", "what-if", "filters=[]"]) == 2
    assert "what-if: this needs languages or filters that have not been" in capsys.readouterr().err
    assert main(["inspect", "documents", "odd"]) == 2
    assert "RULE: unknown 'odd'; choose from language" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"quality": {"filters": [{"python": "nowhere_at_all:f", "version": "1"}]}},
            "quality.filters.0: there is no module 'nowhere_at_all': put it beside the recipe",
        ),
        (
            {"quality": {"filters": [{"python": "own:even", "version": 1}]}},
            "quality.filters.0.version: must be text, not 1: write it in quotes, '1'$",
        ),
        (
            {"quality": {"filters": ["own:even"]}},
            r"quality.filters.0: must be a mapping, `\{key: value\}`, not 'own:even'$",
        ),
        (
            {"transforms": [{"python": "own:shuot", "version": "1"}]},
            "transforms.0: 'own:shuot': own .* has no 'shuot': did you mean 'shout'",
        ),
        (
            {"transforms": [{"python": "own:shout", "version": "1", "corpora": ["note"]}]},
            "transform 'shout': unknown corpus 'note'; choose from notes",
        ),
        (
            {"quality": {"filters": [{"python": "own:even", "version": "1", "name": "min_words"}]}},
            "the name 'min_words' is in use already: give 'own:even' another `name`",
        ),
        (
            {"quality": {"filters": [{"python": "own:even", "version": "1", "name": "even/odd"}]}},
            "'even/odd' cannot name a filter: use letters, digits, '_' and '-'",
        ),
        (
            {
                "corpora": [
                    {"name": "notes", "source": {"kind": "python", "object": "own:Long", "version": "1"}}
                ]
            },
            "corpora.0.source: own:Long has no method 'documents'",
        ),
    ],
)
def test_a_mistake_is_found_when_the_recipe_is_loaded(tmp_path: Path, changes: dict, said: str) -> None:
    recipe = {
        "name": "own",
        "corpora": [{"name": "notes", "source": source().model_dump()}],
        "training": TRAINING,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe | changes))
    with pytest.raises(RecipeError, match=said):
        load_recipe(path)
