"""The kept text of all corpora -> a tokenizer, trained once and then frozen."""

import json
from collections.abc import Iterator, Sequence
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.fingerprint import canonical_json
from pipeline.flows.kept import kept_documents
from pipeline.stages import tokenizer as bpe
from pipeline.store import Draft, File, Part, Store, Version, Work
from trainer.durable import write_atomically

KEY = "tokenizer"


def tokenizer(
    store: Store, recipe: str, corpora: Sequence[str], params: bpe.TokenizerParams, validation_fraction: float, retrain: bool = False
) -> Version:
    """The recipe's tokenizer. One that exists stays, whatever the corpora became: a new one would invalidate every shard and checkpoint.

    `retrain` asks for a new one; so does a change of `params`. Held-out documents are not trained on. Raises VocabularyError.
    """
    work = None if retrain else _frozen(store, recipe, params)
    if work is None:
        settings = {"recipe": recipe, "tokenizer": params.model_dump(), "validation_fraction": validation_fraction}
        work = Work(KEY, bpe.VERSION, settings, {key: store.current(key).data_version for key in _input_keys(corpora)})
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        return _train(draft, store, corpora, params, validation_fraction)


def _train(draft: Draft, store: Store, corpora: Sequence[str], params: bpe.TokenizerParams, validation_fraction: float) -> Version:
    total = sum(store.current(f"corpora/{corpus}/scrubbed").counts["text_bytes"] for corpus in corpora)
    sampled = min(1.0, params.sample_bytes / max(total, 1))
    counts = {"documents": 0, "text_bytes": 0}

    def texts() -> Iterator[list[str]]:
        for corpus in corpora:
            for batch in kept_documents(store, corpus):
                ids = batch.column("id")
                taken = (bpe.share_of(ids, "validation") >= validation_fraction) & (bpe.share_of(ids, "tokenizer") < sampled)
                sample = batch.column("text").filter(pa.array(taken))
                counts["documents"] += len(sample)
                counts["text_bytes"] += pc.sum(pc.binary_length(sample)).as_py() or 0
                yield sample.to_pylist()

    trained = bpe.train(texts(), params)
    files = {}
    for name, content in bpe.files(trained, params).items():
        path = draft.path / name
        write_atomically(path, content)
        files[name] = File.of(path, draft.path)
    part = Part(KEY, draft.work.fingerprint, files, {**counts, "entries": trained.get_vocab_size()})
    return draft.publish([part])


def _frozen(store: Store, recipe: str, params: bpe.TokenizerParams) -> Work | None:
    """What made the recipe's tokenizer from whatever the corpora were then: the one in use, else (another was in between) the newest."""
    asked = json.loads(canonical_json({"recipe": recipe, "tokenizer": params}))
    in_use = store.current(KEY).fingerprint if store.has(KEY) else None
    found = []
    for path in store.directory(KEY).glob("*/manifest.json"):
        manifest = json.loads(path.read_text())
        work = Work(KEY, bpe.VERSION, manifest["params"], manifest["inputs"])
        if asked.items() <= manifest["params"].items() and work.fingerprint == manifest["fingerprint"] and store.find(work):
            found.append((work.fingerprint == in_use, manifest["finished"], work))
    return max(found, key=itemgetter(0, 1))[2] if found else None


def _input_keys(corpora: Sequence[str]) -> list[str]:
    return ["dedup", *(f"corpora/{corpus}/{stage}" for corpus in corpora for stage in ("scrubbed", "quality"))]
