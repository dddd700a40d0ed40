"""The globs of a recipe match the files of a corpus and no others, wherever they are."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources.listing import listed
from pipeline.start.choose import Wishes
from pipeline.start.folder.patterns import patterns
from tests.folders import ENGLISH
from tests.pipeline.start.test_odd_folders import read
from tests.pipeline.start.test_start import judged, recipe_of

PARTS = st.sampled_from(["a", "b", "a b", "[x]", "*", "~", "é", "ab"])
FILES = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: f"{'/'.join(parts)}.md")


@settings(max_examples=40)
@given(st.lists(st.tuples(FILES, st.booleans()), min_size=1, max_size=12, unique_by=lambda one: one[0]))
def test_any_files_of_a_folder_are_matched_and_no_others(files: list[tuple[str, bool]]) -> None:
    chosen = [name for name, is_chosen in files if is_chosen]
    with TemporaryDirectory() as directory:
        folder = Path(directory, "texts")
        for name, _ in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)
        globs = [f"{directory}/{one}" for one in patterns(folder, chosen, [name for name, _ in files])]
        found = listed("mine", globs, lambda _: False) if chosen else {}
    assert [*found] == sorted(chosen)


def test_packages_of_others_in_a_folder_of_programs_are_named_and_not_learned(tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    for place in ("app/src", "app/node_modules/lodash", "tool/venv/lib/python3/site-packages/x", "."):
        (folder / place).mkdir(parents=True, exist_ok=True)
        for suffix in (".js", ".py"):
            (folder / place / f"main{suffix}").write_text(f"# of {place}\n" + "x = 1\n" * 2_000)
    (folder / "notes.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in ENGLISH[:9]))
    assert set(judged(folder).unread) == {
        f"{place}/main{suffix}"
        for place in ("app/node_modules/lodash", "tool/venv/lib/python3/site-packages/x")
        for suffix in (".js", ".py")
    }
    texts, _ = read(recipe_of(folder, Wishes(3600.0))[0])
    programs = sorted(text.splitlines()[0] for text in texts if text.startswith("# of"))
    assert programs == ["# of .", "# of .", "# of app/src", "# of app/src"]
    alone = judged(folder / "app" / "node_modules")
    assert sum(one.files for one in alone.corpora) == 2
