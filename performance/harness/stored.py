"""The sample text as a corpus in a store, in one part of the size that the cluster recipes have."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.sidebyside import CORPORA
from pipeline.sources.files import FilesConfig
from pipeline.stages.pii import PiiParams
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect, scrub

CORPUS = "sample"
PART_BYTES = 128_000_000


@contextmanager
def stored(names: Sequence[str]) -> Iterator[Path]:
    """The root of a store in which these corpora are one, raw and scrubbed."""
    with tempfile.TemporaryDirectory() as directory:
        store, config = (
            Store(Path(directory)),
            FilesConfig(paths=tuple(str(CORPORA / f"{name}.jsonl.zst") for name in names)),
        )
        collect(store, LocalEngine(1), CORPUS, config, PART_BYTES)
        scrub(store, LocalEngine(1), CORPUS, PiiParams())
        yield store.root
