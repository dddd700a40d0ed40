"""docs/concepts.md, "Part": one file of a corpus changes, and only its parts are made again."""

import pytest

from pipeline.store.manifest import Version
from tests.integration.project import Project

pytestmark = pytest.mark.slow
STAGES = ("corpora/notes/raw", "corpora/notes/scrubbed", "token_shards/notes")


def inodes(version: Version) -> set[int]:
    """Of the files of its parts: an unchanged part is a hard link to that of an older version."""
    kept = {".parquet", ".bin", ".idx"}
    return {path.stat().st_ino for path in version.path.rglob("*") if path.suffix in kept}


def test_a_changed_file_is_tokenized_again_and_its_neighbors_are_linked(another: Project) -> None:
    before = {key: inodes(another.store.current(key)) for key in STAGES}
    changed = another.directory / "texts/assert.txt"
    changed.write_text(f"{changed.read_text()}\nZebras graze beside the assertions.\n")
    another.make(job="retokenize")
    for key in STAGES:
        after = inodes(another.store.current(key))
        assert 0 < len(after - before[key]) < len(after & before[key]), key
    assert another.command("trace", "--count", "Zebras graze beside").startswith("1  ")
