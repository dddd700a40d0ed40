"""scrubbed -> tables that are made from the text of each document alone, batch by batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Version
from pipeline.store.parts import BatchResult, BatchStep, derive, part_tasks
from pipeline.store.store import Store
from pipeline.store.work import Work


@dataclass(frozen=True)
class TextTable:
    """The stage corpora/<corpus>/<name>. `kernel` takes a batch of `id` and `text` and returns the rows of
    each table in `schemas`, with counts; whoever changes what it returns raises `version`.
    """

    name: str
    version: str
    kernel: Callable[[pa.RecordBatch], BatchResult]
    schemas: Mapping[str, pa.Schema]
    params: Mapping[str, Any] = field(default_factory=dict)

    def work(self, store: Store, corpus: str) -> Work:
        """What the scrubbed text of the corpus decides."""
        inputs = store.data_versions([keys.scrubbed(corpus)])
        return Work(keys.of_corpus(corpus, self.name), self.version, self.params, inputs)

    def make(self, store: Store, engine: Engine, corpus: str) -> Version:
        """The tables of a corpus, made or found."""
        work, scrubbed = self.work(store, corpus), store.current(keys.scrubbed(corpus))
        step = BatchStep(self.kernel, self.schemas, columns=["id", "text"])
        return derive(store, engine, work, part_tasks(work, [(scrubbed, "documents")]), step.write_part)
