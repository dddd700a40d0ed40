"""A source of text -> evaluation_texts/<name>: windows on which every checkpoint is scored alike."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from pipeline.recipe.evaluation import EvaluationText
from pipeline.recipe.recipe import Recipe
from pipeline.stages import pii, text_windows
from pipeline.steps import compile_ahead
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.stage import DataStage, Page
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import PartWriter, all_batches, read_table
from pipeline.store.store import Store
from pipeline.store.work import Work

log = logging.getLogger(__name__)
TABLE = "windows"
# The same for all recipes, whatever they scrub of their corpora.
SCRUBBED = pii.PiiParams()


@dataclass(frozen=True)
class EvaluationWindows(DataStage):
    """The windows of an evaluation text: table `windows`."""

    text: EvaluationText

    name = keys.EVALUATION_TEXTS
    version = text_windows.VERSION
    page = Page(
        "The text `{text}` in windows that do not depend on a tokenizer, neither filtered nor deduplicated. "
        "Every checkpoint is scored on it, so that models of other corpora or filters can be compared.",
        kinds=("parquet",),
        group="model",
        job="pretrain",
        numbers={"windows": "windows", "bytes scored": "scored_bytes", "bytes read": "text_bytes"},
    )

    @classmethod
    def all_of(cls, recipe: Recipe) -> Sequence[Self]:
        return list(map(cls, recipe.evaluation.texts))

    @property
    def key(self) -> Key:
        return keys.evaluation_text(self.text.name)

    @property
    def names(self) -> dict[str, str]:
        return {"text": self.text.name}

    @property
    def raw(self) -> Raw:
        """The text as its source delivers it. A corpus has no '.' in its name."""
        return Raw(f"text.{self.text.name}", self.text.source)

    def work(self, store: Store) -> Work:
        inputs = store.data_versions([self.raw.key])
        return Work(self.key, f"{self.version} {pii.VERSION}", {"max_bytes": self.text.max_bytes}, inputs)

    def make(self, store: Store, engine: Engine) -> Version:
        """Reads and scrubs the text, but filters nothing. Raises SourceError; PipelineError without text."""
        compile_ahead.start()  # which does nothing any more once a kernel is compiled
        compile_ahead.wait_for_scrubbing()
        raw = self.raw.make(store, engine)
        with store.making(self.work(store)) as draft:
            if isinstance(draft, Version):
                return draft
            scrubbed = (pii.scrub(batch, SCRUBBED)[0] for batch in all_batches(raw, "documents"))
            windows, counts = text_windows.drawn(scrubbed, self.text.max_bytes)
            if counts["scored_bytes"] < counts["text_bytes"]:
                scored = f"{counts['scored_bytes']:,} of {counts['text_bytes']:,} bytes"
                log.info("evaluation text %s: %s are scored (max_bytes)", self.text.name, scored)
            with PartWriter(draft.path, TABLE, {TABLE: text_windows.SCHEMA}) as writer:
                for batch in windows.to_batches():
                    writer.write(TABLE, batch)
            return draft.publish([Part(TABLE, draft.work.fingerprint, writer.files, counts)])


def scored(store: Store, name: str) -> pa.Table:
    """The windows of an evaluation text. Raises StoreError when it has not been read yet."""
    return read_table(store.current(keys.evaluation_text(name)).only(TABLE))
