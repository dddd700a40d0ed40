"""Token shards put into a store as tokenizing would leave them, in parts of the test's choosing."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pytest

from pipeline.stages import suffixes
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.fingerprint import fingerprint
from pipeline.store.manifest import File, Part, Version
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.data.shard_writer import ShardWriter
from trainer.data.shards import bin_path, idx_path

BOT, EOT, FIRST = 1, 2, 3
Parts = Mapping[str, Sequence[np.ndarray]]  # documents by part


def put_shards(store: Store, parts: Parts, dtype: type, corpus: str = "books") -> Version:
    """A version of the token shards of a corpus, with one train shard in each part."""
    made_from = fingerprint({name: [one.tolist() for one in documents] for name, documents in parts.items()})
    with store.making(Work(keys.token_shards(corpus), "test", {}, {"made from": made_from})) as draft:
        if not isinstance(draft, Draft):
            return draft
        return draft.publish([_part(draft, name, documents, dtype) for name, documents in parts.items()])


def _part(draft: Draft, name: str, documents: Sequence[np.ndarray], dtype: type) -> Part:
    prefix = draft.path / "train" / f"{name}.00000"
    prefix.parent.mkdir(exist_ok=True)
    with ShardWriter(prefix, np.dtype(dtype)) as writer:
        for document in documents:
            writer.add(document)
    paths = {"bin": bin_path(prefix), "idx": idx_path(prefix)}
    files = {f"train.00000.{kind}": File.of(path, draft.path) for kind, path in paths.items()}
    return Part(name, fingerprint(name), files, {"train_tokens": sum(map(len, documents))})


def drawn(parts: int, documents: int, dtype: type, seed: int = 3) -> dict[str, list[np.ndarray]]:
    """Documents of 2 to 400 tokens between BOT and EOT, of few ids and of phrases, so that runs repeat."""
    chooser, top = np.random.default_rng(seed), 60_000 if dtype == np.uint16 else 150_000
    phrases = [chooser.integers(FIRST, top, size) for size in chooser.integers(1, 80, 40)]

    def document() -> np.ndarray:
        pieces = [phrases[number] for number in chooser.integers(0, len(phrases), chooser.integers(0, 10))]
        return np.concatenate([[BOT], *pieces, chooser.integers(FIRST, 20, chooser.integers(0, 40)), [EOT]])

    return {f"part{number}": [document() for _ in range(documents)] for number in range(parts)}


def cut(patch: pytest.MonkeyPatch, parts: Parts, number_of_blocks: int) -> None:
    """Lets an index have at least so many blocks of each part."""
    if number_of_blocks > 1:
        tokens = min(sum(map(len, part)) for part in parts.values())
        at_least = -(-tokens // number_of_blocks) - 450
        patch.setattr(suffixes, "blocks", partial(suffixes.blocks, at_least=at_least))


def runs_of(parts: Parts, number: int, seed: int = 5) -> list[np.ndarray]:
    """Runs of 1 to 60 tokens, each out of one document; of one in four an id is another one."""
    chooser = np.random.default_rng(seed)
    documents = [document for part in parts.values() for document in part]
    found = []
    for turn in range(number):
        document = documents[chooser.integers(len(documents))]
        start = int(chooser.integers(len(document)))
        run = document[start : start + int(chooser.integers(1, 61))].copy()
        if turn % 4 == 0:
            run[chooser.integers(len(run))] = chooser.integers(FIRST, 20)
        found.append(run)
    return found


def counted(parts: Parts, run: np.ndarray) -> int:
    """How often a run occurs, by a scan of all documents, each of which is followed by an id of no run."""
    nothing = np.zeros(len(run), run.dtype)
    stream = np.concatenate([piece for part in parts.values() for one in part for piece in (one, nothing)])
    places = np.flatnonzero(stream == run[0])
    for offset, token in enumerate(run):
        places = places[stream[places + offset] == token]
    return len(places)
