"""A reader sees a whole version or none, and work that was done is not done again."""

import json
import multiprocessing
import shutil
import time
from pathlib import Path

import pytest

from pipeline.store.draft import Draft
from pipeline.store.engines.local import LocalEngine
from pipeline.store.keys import Key
from pipeline.store.manifest import File, Part, Version
from pipeline.store.parts import PartTask, derive
from pipeline.store.store import Store, StoreError
from pipeline.store.work import Work


def work(key: str = "stage", params: object = None, **inputs: str) -> Work:
    return Work(key, "v1", params or {}, inputs)


def write_part(draft: Draft, name: str, text: str, made_from: str = "input") -> Part:
    path = draft.path / "table" / f"{name}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    part = Part(
        name,
        draft.work.part_fingerprint([made_from]),
        {"table": File.of(path, draft.path)},
        {"rows": len(text)},
    )
    draft.keep(part)
    return part


def publish(store: Store, job: Work, **texts: str) -> Version:
    with store.making(job) as draft:
        assert isinstance(draft, Draft)
        return draft.publish(
            [write_part(draft, name, text, made_from=name + text) for name, text in texts.items()]
        )


def test_a_version_is_found_again_and_becomes_current(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = publish(store, work(source="1"), a="one", b="three")
    with store.making(work(source="1")) as found:
        assert isinstance(found, Version)
        assert found.reused
    assert store.current(Key("stage")).path == made.path
    assert made.counts == {"rows": 8}


def test_what_has_to_hold_before_work_is_not_asked_when_there_is_none(tmp_path: Path) -> None:
    def refuse() -> None:
        raise StoreError("no cluster answers")

    publish(Store(tmp_path), work(source="1"), a="one")
    store = Store(tmp_path, before_making=refuse)
    with store.making(work(source="1")) as found:
        assert isinstance(found, Version)
    with pytest.raises(StoreError, match="no cluster answers"), store.making(work(source="2")):
        pass
    assert not list(tmp_path.glob("stage/.*.partial"))


def test_the_data_version_is_the_content_whatever_made_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = publish(store, work(source="1"), a="same"), publish(store, work(source="2"), a="same")
    assert first.fingerprint != second.fingerprint
    assert first.data_version == second.data_version
    assert publish(store, work(source="3"), a="other").data_version != first.data_version


def test_parts_keep_the_order_of_the_tasks_whichever_an_interrupted_attempt_finished(tmp_path: Path) -> None:
    tasks = [PartTask(name, name, (), 0) for name in ("z", "a", "m")]
    with pytest.raises(RuntimeError), Store(tmp_path).making(work()) as draft:
        write_part(draft, "a", "a", made_from="a")
        raise RuntimeError
    made = derive(Store(tmp_path), LocalEngine(workers=1), work(), tasks, _write_task)
    assert [part.name for part in made.parts] == ["z", "a", "m"]


def _write_task(task: PartTask, directory: Path) -> Part:
    path = directory / "table" / task.name
    path.parent.mkdir(exist_ok=True)
    path.write_text(task.name)
    return Part(task.name, task.fingerprint, {"table": File.of(path, directory)})


def test_nothing_is_visible_before_publish(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(RuntimeError), store.making(work()) as draft:
        write_part(draft, "a", "one")
        raise RuntimeError
    assert store.existing(work()) is None
    with pytest.raises(StoreError, match="has not been made yet"):
        store.current(Key("stage"))


def test_parts_of_an_interrupted_attempt_are_used_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(RuntimeError), store.making(work()) as draft:
        kept = write_part(draft, "a", "one")
        raise RuntimeError
    with store.making(work()) as draft:
        assert draft.finished("a", kept.fingerprint) == kept
        assert draft.finished("a", "made from something else") is None
        assert draft.finished("b", kept.fingerprint) is None
        draft.publish([kept])
    assert [
        path.name for path in store.current(Key("stage")).path.iterdir() if path.name.startswith(".")
    ] == []


def test_an_unchanged_part_of_the_version_before_is_linked_not_made_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    before = publish(store, work(source="1"), a="one", b="two")
    with store.making(work(source="2")) as draft:
        part = draft.finished("a", before.parts[0].fingerprint)
        assert part == before.parts[0]
        assert draft.finished("c", part.fingerprint) is None, "its files bear the other part's name"
        after = draft.publish([part, write_part(draft, "b", "changed")])
    assert after.file(part, "table").path.stat().st_ino == before.file(part, "table").path.stat().st_ino
    assert before.file(before.parts[1], "table").read_text() == "two"


def test_a_linked_part_survives_a_kill_though_its_version_is_gone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    before = publish(store, work(source="1"), a="one")
    part = before.parts[0]
    with pytest.raises(RuntimeError), store.making(work(source="2")) as draft:
        assert draft.finished("a", part.fingerprint) == part
        raise RuntimeError
    shutil.rmtree(before.path)
    with store.making(work(source="2")) as draft:
        assert draft.finished("a", part.fingerprint) == part


def test_a_damaged_file_is_not_taken_over_from_the_version_before(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = publish(store, work(), a="one", b="two")
    made.file(made.parts[0], "table").path.write_text("on")
    with store.making(work()) as draft:
        assert draft.finished("a", made.parts[0].fingerprint) is None
        assert draft.finished("b", made.parts[1].fingerprint) == made.parts[1]
        draft.publish([write_part(draft, "a", "one", made_from="aone"), made.parts[1]])
    assert store.existing(work()) is not None


def test_a_part_that_was_being_replaced_when_the_run_was_killed_is_made_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(RuntimeError), store.making(work()) as draft:
        part = write_part(draft, "a", "one")
        (draft.path / part.files["table"].path).write_text("rewritten, not yet recorded")
        raise RuntimeError
    with store.making(work()) as draft:
        assert draft.finished("a", part.fingerprint) is None


def test_going_back_to_earlier_work_makes_its_version_current_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = publish(store, work(source="1"), a="one")
    publish(store, work(source="2"), a="two")
    assert store.existing(work(source="1")) is not None
    assert store.current(Key("stage")).path != first.path
    with store.making(work(source="1")) as found:
        assert isinstance(found, Version)
    assert store.current(Key("stage")).path == first.path


def test_stray_files_are_not_published(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.making(work()) as draft:
        (draft.path / "left-over.tmp").write_text("half")
        made = draft.publish([write_part(draft, "a", "one")])
    assert sorted(path.name for path in made.path.rglob("*") if path.is_file()) == ["a.txt", "manifest.json"]


def test_the_manifest_says_what_the_version_was_made_from(tmp_path: Path) -> None:
    made = publish(Store(tmp_path), work(params={"threshold": 0.8}, source="abc"), a="one")
    manifest = json.loads((made.path / "manifest.json").read_text())
    assert manifest["params"] == {"threshold": 0.8}
    assert manifest["inputs"] == {"source": "abc"}
    assert manifest["parts"][0]["files"]["table"]["bytes"] == 3
    assert manifest["tools"]["pyarrow"]


@pytest.mark.parametrize("key", ["../out", "/etc", "a//b", "a/../b", "", ".hidden", "a/.b"])
def test_a_key_cannot_leave_the_store(tmp_path: Path, key: str) -> None:
    with pytest.raises(StoreError, match="is not a valid key"):
        Store(tmp_path).directory(key)


def _make_slowly(root: Path, ready: object) -> None:
    store = Store(root)
    with store.making(work()) as draft:
        ready.set()  # type: ignore[attr-defined]
        time.sleep(0.5)
        draft.publish([write_part(draft, "a", "one")])


def test_two_processes_do_not_make_the_same_version_twice(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=_make_slowly, args=(tmp_path, ready))
    other.start()
    ready.wait(20)
    with Store(tmp_path).making(work()) as found:
        assert isinstance(found, Version)
    other.join()


def test_a_report_is_made_once_for_what_it_is_made_from_and_is_no_part_of_the_version(tmp_path: Path) -> None:
    store = Store(tmp_path)
    version = publish(store, work(), a="one")
    asked: list[str] = []

    def report(made_from: str) -> dict[str, object]:
        def make() -> dict[str, object]:
            asked.append(made_from)
            return {"rows": [1, 2], "of": made_from}

        found: dict[str, object] = store.current(version.key).report("facts", made_from, make)
        return found

    assert report("a") == report("a") == {"rows": [1, 2], "of": "a"}
    assert report("b")["of"] == "b"
    assert asked == ["a", "b"]
    assert {path.name for path in version.path.iterdir()} == {"manifest.json", "table"}


def test_what_was_reported_on_a_damaged_version_does_not_outlive_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = publish(store, work(), a="one")
    assert made.report("facts", 1, lambda: "of the damaged one") == "of the damaged one"
    made.file(made.parts[0], "table").path.write_text("on")
    assert publish(store, work(), a="one").report("facts", 1, lambda: "of the new one") == "of the new one"


def test_what_differs_is_named_and_beyond_four_counted(tmp_path: Path) -> None:
    store, five = Store(tmp_path), dict.fromkeys("abcde", 1)
    made = publish(store, work("key", params=five))
    for changed, said in (
        (dict.fromkeys("bcde", 1), "a"),
        (dict.fromkeys("abcde", 2), "a, b, c, d and 1 more"),
    ):
        assert list(work("key", params=changed).differences(made.manifest)) == [f"settings ({said})"]
