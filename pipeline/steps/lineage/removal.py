"""Finds the documents that a person wants removed, what read them and what removing them costs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.documents import document_id, own_id
from pipeline.steps.lineage.checkpoints import Checkpoint, LineageError, Trained, checkpoints
from pipeline.steps.lineage.documents import Training, homes, texts_read
from pipeline.store import keys
from pipeline.store.params import GROUP
from pipeline.store.parquet import batches
from pipeline.store.removed import Removed, hashed
from pipeline.store.store import Store, StoreError

Documents = Mapping[str, set[str]]  # ids by corpus


@dataclass(frozen=True)
class Reading:
    """At how many steps a checkpoint read any of the documents, and the first and the last of them: in its
    own training, or in that of an ancestor, `through`. `steps` is None where nobody can tell.
    """

    checkpoint: str
    steps: int | None
    first: int | None = None
    last: int | None = None
    through: str | None = None


def find(store: Store, named: Sequence[str]) -> Documents:
    """The documents of all corpora, whatever recipe has read them. Each name is an id of the store, an id
    that the source gives, a URL, or a corpus, whose documents are meant. Raises LineageError for a name of
    none.
    """
    store.files.versions()
    found: dict[str, set[str]] = defaultdict(set)
    unknown = set(named)
    for corpus in sorted(folder.parent.name for folder in store.root.glob(keys.raw("*"))):
        aliases = {document_id(corpus, own_id(name)): name for name in named} | {name: name for name in named}
        for version in store.newest_first(keys.raw(corpus)):
            for path in version.files("documents"):
                for batch in batches(path, ["id", "url"]):
                    ids, hits = batch.column("id"), list(_hits(batch, aliases))
                    if corpus in named:
                        hits = [(row, corpus) for row in range(batch.num_rows)]
                    found[corpus].update(ids[row].as_py() for row, _ in hits)
                    unknown -= {name for _, name in hits}
    if unknown:
        raise LineageError(
            f"{min(unknown)!r} is not the id or the URL of a document, nor a corpus, that this store has "
            "read: `python -m pipeline trace` finds the documents that hold a text"
        )
    return {corpus: ids for corpus, ids in found.items() if ids}


def _hits(batch: pa.RecordBatch, aliases: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The rows that are meant, each with the name that means it."""
    wanted, ids = pa.array(list(aliases)), batch.column("id")
    for column in (ids, pc.replace_substring_regex(ids, f"{GROUP}.*", ""), batch.column("url")):
        for row in np.flatnonzero(pc.is_in(column, wanted)):
            yield int(row), aliases[column[int(row)].as_py()]


def hashes(documents: Documents) -> Removed:
    """The documents as the list of the store would have them."""
    return Removed((frozenset(hashed(one) for ids in documents.values() for one in ids),))


def readings(store: Store, documents: Removed) -> Iterator[Reading]:
    """Of each checkpoint on disk that read any of the documents, or of which nobody can tell."""
    by_shards: dict[str, list[Checkpoint]] = defaultdict(list)
    for one in checkpoints(store):
        by_shards[f"{one.run} {one.lineage['assets']}"].append(one)
    for together in by_shards.values():
        last = together[-1]
        own = _steps(store, Training(last.run), last, last.step, documents)
        yield from (_reading(one, own, one.step) for one in together)
        for ancestor, home in homes(store, last):
            step = ancestor.lineage["training"]["step"]
            steps = _steps(home[0], Training(home[1]), ancestor, step, documents) if home else None
            yield from (_reading(one, steps, step, ancestor.described) for one in together)


def _steps(
    store: Store, training: Training, one: Trained, until: int, documents: Removed
) -> np.ndarray | None:
    """The steps that read any of the documents; None when the run or its text is gone."""
    try:
        texts = texts_read(store, one.lineage)
        found = [
            training.readings(corpus, begin, end, until)[2]
            for corpus, text in texts.items()
            for begin, end in text.ranges(documents)
        ]
    except (LineageError, StoreError, OSError):
        return None
    return np.unique(np.concatenate([np.zeros(0, np.int64), *found]))


def _reading(one: Checkpoint, steps: np.ndarray | None, until: int, through: str | None = None) -> Reading:
    if steps is None:
        return Reading(one.name, None, through=through)
    read = steps[steps <= until].tolist()
    first, last = (read[0], read[-1]) if read else (None, None)
    return Reading(one.name, len(read), first, last, through)


def returning(store: Store, documents: Removed) -> dict[str, str]:
    """The documents that dedup left out for one of these, each with that one: they come back, unless they are
    removed, too.
    """
    found: dict[str, str] = {}
    for version in store.newest_first(keys.DEDUP):
        for path in version.files("decisions"):
            for batch in batches(path, ["id", "duplicate_of"]):
                ids, survivors = batch.column("id"), batch.column("duplicate_of")
                comes = documents.among(survivors) & ~documents.among(ids)
                found |= {ids[row].as_py(): survivors[row].as_py() for row in map(int, np.flatnonzero(comes))}
    return found
