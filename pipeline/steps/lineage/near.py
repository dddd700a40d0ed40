"""Finds stored documents that are nearly the same as a text, hold most of it, or are held in it.

The MinHashes of passages give candidates, and each is compared with the text, exactly, before it is shown.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.stages.dedup import shingle_sets
from pipeline.stages.dedup.passage_search import PassageSearch
from pipeline.stages.dedup.passages import SHINGLES, WORDS, passages
from pipeline.steps.dedup import passage_index
from pipeline.steps.lineage.documents import texts_of
from pipeline.steps.lineage.readers import Reader
from pipeline.steps.lineage.trace import TraceError
from pipeline.steps.lineage.treated_text import treated
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Version
from pipeline.store.parquet import numbered_rows, read_table
from pipeline.store.removed import of_all, requests

LIMIT = 10  # documents that are shown
LEAST = 0.3  # of the shingles of one that the other has. Where 3 words of 10 are replaced, 0.34 stay
SHORTEST = 10  # words of a text
SHARED = 5  # shingles that a text and a document have in common, at least
WINDOWS = 16  # passages of a long text that are looked for, evenly spaced
CANDIDATES = 100  # documents that are compared with the text
BEGINNING = 200  # characters


@dataclass(frozen=True)
class Near:
    """A document that is like a text. Shares of distinct 3-grams of words, 0 to 1: `jaccard`, of those of
    both together, what they have in common; `holds`, of those of the text, what the document has; `held`, of
    those of the document, what the text has. `fate`: what quality and dedup decided. `steps`: those at which
    the reader read it; None where nobody read it, but a recipe has it.
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


class _Match(NamedTuple):
    """A document of a part (its number) that has enough in common with the text, by `holds` and `held`."""

    part: int
    row: Mapping[str, Any]
    jaccard: float
    holds: float
    held: float

    @property
    def in_common(self) -> float:
        return self.holds + self.held


def check(text: str) -> None:
    """Raises TraceError for a text of too few words to be compared."""
    if _windows(text)[1].sum() < SHORTEST - WORDS + 1:
        raise TraceError(
            f"the text has fewer than {SHORTEST} words, too few to be compared: give more text, or the name "
            "of a file that exists, or count it word for word with `python -m pipeline trace --count TEXT`"
        )


class NearSearcher:
    """The documents of a reader, open to be searched, whatever quality and dedup decided on them. `engine`
    makes what is not indexed yet, after `say` was told how much. `least`: what `Near.holds` or `Near.held`
    must reach. Raises LineageError for text that is gone.
    """

    def __init__(
        self, reader: Reader, engine: Engine, say: Callable[[str], None] = print, least: float = LEAST
    ):
        self.reader, self._least = reader, least
        self._texts = texts_of(reader.store, reader.lineage)
        self._removed = of_all(requests(reader.store.files))
        indexes = {corpus: self._index(text.scrubbed, engine, say) for corpus, text in self._texts.items()}
        self._parts = [
            (corpus, index, part)
            for corpus, index in indexes.items()
            for part in index.parts
            if part.counts["passages"]
        ]
        opened = [
            passage_index.opened(index.file(part, "values"), index.file(part, "orders"))
            for _, index, part in self._parts
        ]
        self._firsts = np.cumsum([0, *(len(values) for values, _ in opened)])
        self._search = PassageSearch(opened, least) if opened else None
        self._ends: dict[int, np.ndarray] = {}  # of the passages of each document of a part

    def _index(self, scrubbed: Version, engine: Engine, say: Callable[[str], None]) -> Version:
        store, work = self.reader.store, passage_index.index_work(scrubbed)
        if index := store.find(work):
            return index
        size = scrubbed.counts["text_bytes"]
        seconds, made = size / passage_index.BYTES_PER_SECOND, passage_index.BYTES_PER_BYTE * size / 1e6
        documents = scrubbed.counts["documents"]
        say(f"making {work.key}: {documents:,} documents, {made:,.1f} MB, {seconds:,.0f} s of one core")
        with store.in_progress():
            return passage_index.index(store, engine, scrubbed)

    def near(self, text: str, limit: int = LIMIT) -> list[Near]:
        """At most so many documents, those that have most in common with the text first."""
        found: dict[str, _Match] = {}
        for form in treated(self.reader.lineage["recipe"], self._texts, text):
            for one in self._matches(form):
                other = found.setdefault(one.row["id"], one)
                if one.in_common > other.in_common:
                    found[one.row["id"]] = one
        best = sorted(found.values(), key=lambda one: (-one.in_common, one.row["id"]))
        return list(map(self._shown, best[:limit]))

    def _shown(self, one: _Match) -> Near:
        corpus, _, part = self._parts[one.part]
        text, document, steps = self._texts[corpus], one.row["id"], None
        if self.reader.training:
            read = self.reader.steps(corpus, text, {part.name: [document]})
            steps = np.unique(np.concatenate([np.zeros(0, np.int64), *read])).tolist()
        return Near(
            corpus,
            document,
            one.row["source"],
            one.row["url"],
            one.row["text"][:BEGINNING],
            round(one.jaccard, 4),
            round(one.holds, 4),
            round(one.held, 4),
            text.fates({part.name: [document]})[document],
            steps,
        )

    def _matches(self, text: str) -> Iterator[_Match]:
        """The candidates that have enough in common with a text."""
        asked = shingle_sets(_documents(text), SHINGLES).hashes
        for part, numbers in self._candidates(text).items():
            corpus, _, of_part = self._parts[part]
            documents = self._texts[corpus].scrubbed.named(of_part.name, "documents")
            table = numbered_rows(documents, np.sort(numbers), ["id", "text", "source", "url"])
            table = table.filter(pa.array(~self._removed.among(table.column("id"))))
            for batch in table.to_batches():
                sets = shingle_sets(batch, SHINGLES)
                for row, document in enumerate(batch.to_pylist()):
                    own = sets.hashes[sets.offsets[row] : sets.offsets[row + 1]]
                    common = len(np.intersect1d(asked, own, assume_unique=True))
                    shares = (
                        common / size for size in (len(asked) + len(own) - common, len(asked), len(own))
                    )
                    match = _Match(part, document, *shares)
                    if common >= SHARED and max(match.holds, match.held) >= self._least:
                        yield match

    def _candidates(self, text: str) -> dict[int, np.ndarray]:
        """The numbers of documents in their parts, by part."""
        scores: dict[tuple[int, int], int] = defaultdict(int)
        minhashes, sizes = _windows(text)
        for window in np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), WINDOWS)).astype(int)):
            best: dict[tuple[int, int], int] = {}
            for number, common in zip(*self._like(minhashes[window], int(sizes[window])), strict=True):
                best.setdefault(self._document(number), int(common))  # the most of one document come first
            for document, common in best.items():
                scores[document] += common
        chosen: dict[int, list[int]] = defaultdict(list)
        for part, number in sorted(scores, key=lambda one: (-scores[one], one))[:CANDIDATES]:
            chosen[part].append(number)
        return {part: np.array(numbers, np.int64) for part, numbers in chosen.items()}

    def _like(self, minhash: np.ndarray, shingles: int) -> tuple[np.ndarray, np.ndarray]:
        nothing = np.zeros(0, np.int64)
        return self._search.like(minhash, shingles, CANDIDATES) if self._search else (nothing, nothing)

    def _document(self, passage: int) -> tuple[int, int]:
        """The part of a passage, and which of the part's documents it is of."""
        part = int(np.searchsorted(self._firsts, passage, side="right")) - 1
        if part not in self._ends:
            _, index, of_part = self._parts[part]
            numbers = read_table(index.file(of_part, "documents"), ["passages"]).column("passages")
            self._ends[part] = np.cumsum(numbers.to_numpy(), dtype=np.int64)
        return part, int(np.searchsorted(self._ends[part], passage - self._firsts[part], side="right"))


def _documents(text: str) -> pa.RecordBatch:
    return pa.record_batch({"text": pa.array([text], pa.large_string())})


def _windows(text: str) -> tuple[np.ndarray, np.ndarray]:
    """The MinHashes of the passages of a text, and their numbers of shingles."""
    return passages(_documents(text))[:2]
