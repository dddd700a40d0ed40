"""The stage `edited`: what several documents have goes, whatever the parts, and nothing is lost."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.sources.files import FilesConfig
from pipeline.stages.edits import EditParams, Repeated
from pipeline.steps.corpus import repeated_units
from pipeline.steps.corpus.edit import texts_before
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.manifest import Version
from pipeline.store.parquet import batches
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect, edit

ENGINE = LocalEngine(1)
LINES = st.sampled_from(["Home", " Home ", "About us", "語", "One more line", "", " "])
DOCUMENTS = st.lists(st.lists(LINES, max_size=6), min_size=1, max_size=8)


def texts(version: Version) -> dict[str, str]:
    found = [
        batch for file in version.files("documents") for batch in batches(file, ["source", "id", "text"])
    ]
    return {row["id"]: row["text"] for batch in found for row in batch.to_pylist()}


def made(directory: Path, documents: list[str], params: EditParams, part_bytes: int = 1000) -> Version:
    """Documents in parts of `part_bytes`, edited."""
    store = Store(directory / "store")
    file = directory / "documents.jsonl"
    file.write_text(
        "".join(json.dumps({"id": f"{n:03d}", "text": one}) + "\n" for n, one in enumerate(documents))
    )
    collect(store, ENGINE, "notes", FilesConfig(paths=(str(file),)), part_bytes)
    return edit(store, ENGINE, "notes", params, keys.raw("notes"))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(documents=DOCUMENTS, least=st.integers(2, 4), first=st.booleans(), ranges=st.integers(1, 3))
def test_repeated_lines_go_as_if_all_documents_were_one_part(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[str]], least: int, first: bool, ranges: int
) -> None:
    rule = Repeated(within="corpus", min_documents=least, keep_first=first)
    padded = [["z" * 300 + str(n), *lines] for n, lines in enumerate(documents)]  # about three in a part
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeated_units, "RANGE_UNITS", max(1, 12 // ranges))
        version = made(
            tmp_path_factory.mktemp("edit"), ["\n".join(one) for one in padded], EditParams(repeated=(rule,))
        )
    having = Counter(line for one in padded for line in {line.strip() for line in one} - {""})
    seen = set()
    for lines, left in zip(padded, texts(version).values(), strict=True):
        expected = []
        for line in lines:
            unit = line.strip()
            if having[unit] < least or (first and unit not in seen):
                expected.append(line)
            if having[unit] >= least:
                seen.add(unit)
        assert left.removesuffix("\n").split("\n") == expected or left == "\n".join(expected)
    assert [text for _, text in texts_before(version)] == ["\n".join(one) for one in padded]


def test_a_part_that_did_not_change_has_the_same_text_after_a_file_was_added(tmp_path: Path) -> None:
    params = EditParams(rules=("policy",), repeated=(Repeated(within="corpus", min_documents=2),))
    one = "A unique story, told at length.\nHome\nWe use cookies.\n" + "x" * 900
    version = made(tmp_path, [one, one.replace("unique", "second")], params)
    assert version.counts["cuts/repeated_line"] == 4
    assert version.counts["cuts/policy"] == 2
    assert version.counts["changed"] == 2
    assert set(texts(version).values()) == {
        "A unique story, told at length.\n",
        "A second story, told at length.\n",
    }
