"""The documents that a store forgot because a person asked for it: no recipe reads them again.

<root>/forgotten/<name>/request.json    what was asked, with hashes of the ids, by corpus
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.store.files import Files
from pipeline.store.fingerprint import combined, fingerprint
from pipeline.store.keys import FORGOTTEN
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import batches
from trainer.system.durable import atomic_directory, read_json

REQUEST = "request.json"
ID_COLUMNS = {"id", "duplicate_of"}
Among = Callable[[pa.Array], np.ndarray]  # which of these ids are those of documents that are asked for


@dataclass(frozen=True)
class Request:
    """What a person asked for. `documents` has the `hashed` ids by corpus. `named` has hashes of what the
    person called the documents, by which the request is found again. `at` is in UTC, ISO 8601.
    """

    at: str
    reason: str
    documents: Mapping[str, list[str]]
    retrain_tokenizer: bool = False
    named: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Requests are in the order of their names."""
        return f"{self.at.replace(':', '')}-{fingerprint(asdict(self))[:8]}"


@dataclass(frozen=True)
class Forgotten:
    """The documents of a corpus that were forgotten, a set of hashes for each request, the oldest first."""

    requests: tuple[frozenset[str], ...] = ()

    @cached_property
    def ids(self) -> frozenset[str]:
        return frozenset().union(*self.requests)

    @cached_property
    def states(self) -> list[str]:
        """A hash of all that was forgotten, before the first request (empty) and after each."""
        united = accumulate(self.requests, lambda before, ids: before | ids)
        return ["", *(combined(sorted(ids)) for ids in united)]

    @property
    def state(self) -> str:
        """The hash of all that is forgotten by now; empty if nothing is."""
        return self.states[-1]

    @property
    def inputs(self) -> dict[str, str]:
        """What a version without these documents has among its inputs; nothing if nothing was forgotten."""
        return {FORGOTTEN: self.state} if self.requests else {}

    def among(self, ids: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Which of the documents were forgotten, bool. A null is none."""
        return np.array([one is not None and hashed(one) in self.ids for one in ids.to_pylist()], bool)


def among(documents: Collection[str], ids: pa.Array) -> np.ndarray:
    """Which of these ids are those of `documents`, bool. Fast where `documents` is a set."""
    return np.array([one in documents for one in ids.to_pylist()], bool)


def part_names(version: Version, part: Part, among: Among) -> bool | None:
    """Whether the tables of a part name any of the documents; None if none of these tables has ids."""
    files = [
        version.file(part, table) for table, file in part.files.items() if file.path.endswith(".parquet")
    ]
    columns = {file: sorted(ID_COLUMNS & set(pq.read_schema(file).names)) for file in files}
    with_ids = {file: names for file, names in columns.items() if names}
    found = (batch for file, names in with_ids.items() for batch in batches(file, names))
    return any(among(column).any() for batch in found for column in batch.columns) if with_ids else None


def hashed(document: str) -> str:
    """What the list holds of a document's id, in hex: it tells nobody which documents were forgotten."""
    return hashlib.blake2b(document.encode(), digest_size=16).hexdigest()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")  # two requests of a second keep their order


def requests(files: Files) -> list[Request]:
    """All requests, the oldest first."""
    return list(requests_by_folder(files).values())


def requests_by_folder(files: Files) -> dict[Path, Request]:
    """All requests, the oldest first, each by its folder."""
    files.pull_folder(files.root / FORGOTTEN)
    paths = sorted((files.root / FORGOTTEN).glob(f"[!.]*/{REQUEST}"))
    return {path.parent: Request(**read_json(path)) for path in paths}


def forgotten(files: Files, corpus: str) -> Forgotten:
    """What was forgotten of a corpus."""
    of_corpus = (request.documents.get(corpus) for request in requests(files))
    return Forgotten(tuple(frozenset(ids) for ids in of_corpus if ids))


def of_all(asked: Sequence[Request]) -> Forgotten:
    """What was forgotten, of all corpora."""
    return Forgotten(tuple(frozenset(chain.from_iterable(one.documents.values())) for one in asked))


def forget(
    files: Files,
    documents: Mapping[str, Collection[str]],
    reason: str,
    *,
    retrain_tokenizer: bool = False,
    named: Collection[str] = (),
    prove: Callable[[Path, Request], object] = lambda *_: None,
) -> tuple[Path, Request]:
    """Lets nobody read the documents with these ids, which a person `named`, from now on. Returns the folder
    and the request. `prove` writes into the folder what a person can show of the request: both are there or
    neither.
    """
    hashes = {corpus: sorted(map(hashed, ids)) for corpus, ids in sorted(documents.items())}
    request = Request(now(), reason, hashes, retrain_tokenizer, sorted(set(map(hashed, named))))
    folder = files.root / FORGOTTEN / request.name
    with atomic_directory(folder) as unseen:
        (unseen / REQUEST).write_text(json.dumps(asdict(request), indent=1), encoding="utf-8")
        prove(unseen, request)
    for path in sorted(folder.iterdir(), key=lambda path: path.name == REQUEST):  # which counts, as the last
        files.push(path)
    return folder, request
