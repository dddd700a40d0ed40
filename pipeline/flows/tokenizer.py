"""The kept text of all corpora -> a tokenizer, trained once and then frozen."""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.flows.kept import kept_documents
from pipeline.stages import tokenizer as bpe
from pipeline.store import Draft, File, Part, Store, Version, Work, write_atomically

KEY = "tokenizer"


def tokenizer(
    store: Store, recipe: str, corpora: Sequence[str], params: bpe.TokenizerParams, validation_fraction: float, retrain: bool = False
) -> Version:
    """The recipe's tokenizer. One that exists stays, whatever the corpora became: a new one would invalidate every shard and checkpoint.

    `retrain` asks for a new one; so does a change of `params`. Held-out documents are not trained on. Raises VocabularyError.
    """
    settings: dict[str, object] = {"recipe": recipe, "tokenizer": params.model_dump(mode="json")}
    frozen = None if retrain else _frozen(store, settings)
    inputs = frozen.manifest["inputs"] if frozen else {key: store.current(key).data_version for key in _input_keys(corpora)}
    with store.making(Work(KEY, bpe.VERSION, settings, inputs)) as draft:
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


def _frozen(store: Store, settings: dict[str, object]) -> Version | None:
    """The newest tokenizer made with these settings from whatever the corpora were then."""
    made = [json.loads(path.read_text()) for path in store.directory(KEY).glob("*/manifest.json")]
    made = [manifest for manifest in made if manifest["params"] == settings and manifest["code_version"] == bpe.VERSION]
    if not made:
        return None
    newest = max(made, key=lambda manifest: manifest["finished"])
    return store.find(Work(KEY, bpe.VERSION, settings, newest["inputs"]))


def _input_keys(corpora: Sequence[str]) -> list[str]:
    return ["dedup", *(f"corpora/{corpus}/{stage}" for corpus in corpora for stage in ("scrubbed", "quality"))]
