"""Finds the documents that a person wants removed, and their duplicates, which then come back."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.documents import document_id, own_id
from pipeline.steps.lineage.checkpoints import LineageError
from pipeline.store import keys
from pipeline.store.params import GROUP
from pipeline.store.parquet import batches
from pipeline.store.removed import among
from pipeline.store.store import Store

Documents = Mapping[str, set[str]]  # ids by corpus


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


def returning(store: Store, documents: Collection[str]) -> dict[str, str]:
    """The documents that dedup left out for one of these, each with that one: they come back, unless they are
    removed, too.
    """
    found: dict[str, str] = {}
    for version in store.newest_first(keys.DEDUP):
        for path in version.files("decisions"):
            for batch in batches(path, ["id", "duplicate_of"]):
                ids, survivors = batch.column("id"), batch.column("duplicate_of")
                comes = among(documents, survivors) & ~among(documents, ids)
                found |= {ids[row].as_py(): survivors[row].as_py() for row in map(int, np.flatnonzero(comes))}
    return found
