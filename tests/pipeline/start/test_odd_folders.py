"""Folders as people have them: all of their text is read, or a sentence says why not."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.recipe.recipe import Recipe
from pipeline.sources import open_source
from pipeline.sources.source import Rejected
from pipeline.start.choose import Wishes
from tests.folders import ENGLISH
from tests.pipeline.start.test_start import recipe_of

NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda name: not name.startswith(".") and len(name.encode()) < 80)


def read(recipe: Recipe) -> tuple[list[str], list[Rejected]]:
    """All texts of the corpora, and what was set aside."""
    texts, rejects = list[str](), list[Rejected]()
    for corpus in recipe.corpora:
        source = open_source(corpus.name, corpus.source)
        for unit in source.units():
            for batch in source.read(unit, rejects):
                texts += batch.column("text").to_pylist()
    return texts, rejects


@settings(max_examples=60, deadline=None)
@given(folder=NAMES, below=NAMES, file=NAMES, column=NAMES)
@example(folder="notes 📚", below="🎵", file="😀", column="текст 😀")
@example(folder="~", below="~root", file="~", column="~")
@example(folder="2024", below="12", file="1e5", column="1")
@example(folder="null", below="true", file="no", column="yes")
@example(folder="2024-01-01", below="[a]", file="*", column="{x: y}")
def test_whatever_a_folder_a_file_or_a_column_is_called_its_text_is_read(
    folder: str, below: str, file: str, column: str
) -> None:
    with TemporaryDirectory() as directory:
        place = Path(directory, folder)
        (place / below).mkdir(parents=True)
        (place / f"{file}.txt").write_text(ENGLISH[0])
        (place / below / f"{file}.md").write_text(ENGLISH[1])
        rows = [json.dumps({column: text}) for text in ENGLISH[2:30]]
        (place / below / f"{file}.jsonl").write_text("\n".join(rows))
        recipe, found = recipe_of(place, Wishes(3600.0))
        assert found.unread == {}
        texts, rejects = read(recipe)
    assert rejects == []
    assert sum(map(len, texts)) == sum(map(len, ENGLISH[:30]))
