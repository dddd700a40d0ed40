"""Finds the documents of a recipe or a checkpoint that are like a text, and says what became of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.stages.dedup.passages import WORDS
from pipeline.steps.dedup import passage_index
from pipeline.steps.dedup.passage_index import Match, Matcher, windows
from pipeline.steps.lineage.documents import texts_of
from pipeline.steps.lineage.readers import Reader
from pipeline.steps.trace.treated_text import treated
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.forgotten import of_all, requests
from pipeline.store.manifest import Version
from trainer.system.wording import counted

DOCUMENTS_SHOWN = 10
SHORTEST = 10  # words of a text
BEGINNING = 200  # characters


@dataclass(frozen=True)
class Near:
    """A document that is like a text, with `jaccard`, `holds` and `held` as in Match. `fate` says what
    quality and dedup decided on it. `steps` are those at which the reader read it, None where only a recipe
    has the document, which nobody has read.
    """

    corpus: str
    document: str
    source: str | None
    url: str | None
    beginning: str
    jaccard: float
    holds: float
    held: float
    fate: str
    steps: Sequence[int] | None


def check(text: str) -> None:
    """Raises PipelineError for a text of too few words to be compared."""
    if windows(text)[1].sum() < SHORTEST - WORDS + 1:
        raise PipelineError(
            f"the text has fewer than {SHORTEST} words, too few to be compared: give more text, or the name "
            "of a file that exists, or count it word for word with `python -m pipeline trace --count TEXT`"
        )


class NearSearcher:
    """The documents of a reader, open to be searched, whatever quality and dedup decided on them. `engine`
    makes missing indexes, after `say` was told what that takes. Raises LineageError for text that is gone.
    """

    def __init__(self, reader: Reader, engine: Engine, say: Callable[[str], None], least: float):
        self.reader = reader
        self._texts = texts_of(reader.store, reader.lineage)
        self._corpora = list(self._texts)
        scrubbed = [text.scrubbed for text in self._texts.values()]
        indexed = [(one, self._index(one, engine, say)) for one in scrubbed]
        self._matcher = Matcher(indexed, least, of_all(requests(reader.store.files)))

    def _index(self, scrubbed: Version, engine: Engine, say: Callable[[str], None]) -> Version:
        store, work = self.reader.store, passage_index.index_work(scrubbed)
        if index := store.existing(work):
            return index
        size, documents = scrubbed.counts["text_bytes"], scrubbed.counts["documents"]
        seconds, made = size / passage_index.BYTES_PER_SECOND, passage_index.BYTES_PER_BYTE * size / 1e6
        number = counted(documents, "documents")
        say(f"making {work.key}: {number}, {made:,.1f} MB, {seconds:,.0f} s of one core")
        with store.in_progress():
            return passage_index.index(store, engine, scrubbed)

    def near(self, text: str, limit: int) -> list[Near]:
        """At most `limit` documents. Those that have most in common with the text come first."""
        found: dict[str, Match] = {}
        for form in treated(self.reader.lineage["recipe"], self._texts, text):
            for one in self._matcher.matches(form):
                other = found.setdefault(one.row["id"], one)
                if one.in_common > other.in_common:
                    found[one.row["id"]] = one
        best = sorted(found.values(), key=lambda one: (-one.in_common, one.row["id"]))
        return list(map(self._shown, best[:limit]))

    def _shown(self, match: Match) -> Near:
        corpus, document, steps = self._corpora[match.version], match.row["id"], None
        text = self._texts[corpus]
        if self.reader.training:
            read = self.reader.steps(corpus, text, {match.part: [document]})
            steps = np.unique(np.concatenate([np.zeros(0, np.int64), *read])).tolist()
        return Near(
            corpus,
            document,
            match.row["source"],
            match.row["url"],
            match.row["text"][:BEGINNING],
            round(match.jaccard, 4),
            round(match.holds, 4),
            round(match.held, 4),
            text.fates({match.part: [document]})[document],
            steps,
        )
