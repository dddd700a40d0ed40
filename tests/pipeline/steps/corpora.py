"""Small corpora of real text, taken through the stages."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pydoc_data.topics import topics

from pipeline.sources.files import FilesConfig
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import up_to_quality
from tests.rows import jsonl

ENGINE = LocalEngine(workers=1)
TEXTS = [text for _, text in sorted(topics.items()) if len(text) > 2000][:30]
StoredRun = tuple[Store, Path]  # and the directory of a run in it
# What a recipe has to say so that it means the versions of `prepare`.
SETTINGS = {"raw": {"part_bytes": 1_000_000}, "quality": "docs"}


def prepare(store: Store, path: Path, texts: Sequence[str], ids: Sequence[str] = ()) -> None:
    """Writes `texts`, with `ids` of their own if there are any, to a JSON-lines file and takes them up to
    quality, as the corpus named like the file.
    """
    rows = [{"text": text} for text in texts]
    for row, name in zip(rows, ids, strict=False):
        row["id"] = name
    jsonl(path, *rows)
    source = FilesConfig(paths=(path.name,)).anchored(path.parent)
    up_to_quality(store, ENGINE, path.stem, source, 1_000_000)


@contextmanager
def as_it_was(directory: Path) -> Iterator[None]:
    """Restores a directory afterwards, at the same place: a recipe is known by its path."""
    kept = shutil.copytree(directory, directory.with_name(f"{directory.name}-kept"))
    yield
    shutil.rmtree(directory)
    kept.rename(directory)
