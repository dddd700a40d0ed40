"""The kept text of all corpora -> a tokenizer, trained once and then frozen; or one that exists, frozen as it
is.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from pipeline.stages import tokenizer as bpe
from pipeline.steps.tokens.existing_tokenizer import CONFIG, TOKENIZER, fetch
from pipeline.steps.tokens.holdout import held_out
from pipeline.store import keys
from pipeline.store.fingerprint import canonical_json, file_sha256, fingerprint
from pipeline.store.kept_documents import kept_documents
from pipeline.store.parts import Counts, add
from pipeline.store.versions import Draft, File, Part, Store, Version, Work
from trainer.system.durable import write_atomically


@dataclass(frozen=True)
class Frozen:
    """What a tokenizer in the store (or in any directory) is: its content, its name by content, and what
    begins and ends a document.
    """

    tokenizer_json: str
    sha256: str
    boundaries: bpe.Boundaries


def frozen(directory: Path) -> Frozen:
    """Raises TokenizerError when the files are not there or do not say what begins and ends a text."""
    try:
        tokenizer, config = ((directory / name).read_text(encoding="utf-8") for name in (TOKENIZER, CONFIG))
    except OSError as error:
        raise bpe.TokenizerError(f"{directory} holds no {TOKENIZER} and {CONFIG}: {error}") from error
    return Frozen(tokenizer, file_sha256(directory / TOKENIZER), bpe.boundaries(tokenizer, config))


def tokenizer(
    store: Store,
    recipe: str,
    corpora: Sequence[str],
    params: bpe.TokenizerChoice,
    validation_fraction: float,
    retrain: bool = False,
) -> Version:
    """The recipe's tokenizer. One that exists stays, whatever the corpora became: a new one would invalidate
    every shard and checkpoint.

    `retrain` asks for a new one, or to fetch an existing one anew; so does a change of `params`. Held-out
    documents are not trained on. Raises TokenizerError, of which VocabularyError is one.
    """
    work = None if retrain else _in_store(store, recipe, params)
    fetched: dict[str, str] = {}
    if work is None and isinstance(params, bpe.ExistingTokenizer):
        fetched = fetch(params)
        work = Work(
            keys.TOKENIZER,
            bpe.VERSION,
            _settings(recipe, params),
            {name: fingerprint(content) for name, content in fetched.items()},
        )
    elif work is None:
        inputs = {key: store.current(key).data_version for key in input_keys(corpora)}
        work = Work(
            keys.TOKENIZER,
            bpe.VERSION,
            _settings(recipe, params) | {"validation_fraction": validation_fraction},
            inputs,
        )
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        if isinstance(params, bpe.ExistingTokenizer):
            return _publish(draft, fetched, {})
        counts = {"documents": 0, "text_bytes": 0}
        trained = bpe.train(_sample(store, corpora, params, validation_fraction, counts), params)
        return _publish(draft, bpe.files(trained, params), counts)


def _sample(
    store: Store,
    corpora: Sequence[str],
    params: bpe.TokenizerParams,
    validation_fraction: float,
    counts: Counts,
) -> Iterator[list[str]]:
    """Texts to train on, at most `sample_bytes`, chosen by their ids within each corpus; counts them."""
    sizes = {corpus: store.current(keys.scrubbed(corpus)).counts["text_bytes"] for corpus in corpora}
    for corpus, budget in bpe.budgets(sizes, params.sample_bytes).items():
        chosen = partial(
            _chosen, validation_fraction=validation_fraction, share=budget / max(sizes[corpus], 1)
        )
        texts = map(chosen, kept_documents(store, corpus))
        yield from sample(texts, params.max_document_chars, budget, counts)


def _chosen(documents: pa.RecordBatch, validation_fraction: float, share: float) -> pa.Array:
    ids = documents.column("id")
    taken = ~held_out(ids, validation_fraction) & (bpe.share_of(ids, "tokenizer") < share)
    return documents.column("text").filter(pa.array(taken))


def sample(
    texts: Iterable[pa.Array], max_document_chars: int, budget: int, counts: Counts
) -> Iterator[list[str]]:
    """The first texts that fit into `budget` bytes, each cut to `max_document_chars`; counts documents and
    bytes.
    """
    for column in texts:
        cut = bpe.cut(column, max_document_chars)
        used = np.cumsum(pc.binary_length(cut).to_numpy())
        fitting = int(np.searchsorted(used, budget, side="right"))
        size = int(used[fitting - 1]) if fitting else 0
        yield cut[:fitting].to_pylist()
        add(counts, {"documents": fitting, "text_bytes": size})
        if fitting < len(cut):
            return
        budget -= size


def _publish(draft: Draft, contents: Mapping[str, str], counts: Mapping[str, int]) -> Version:
    files = {}
    for name, content in contents.items():
        path = draft.path / name
        write_atomically(path, content)
        files[name] = File.of(path, draft.path)
    entries = 1 + max(Tokenizer.from_str(contents[TOKENIZER]).get_vocab(with_added_tokens=True).values())
    return draft.publish(
        [Part(keys.TOKENIZER, draft.work.fingerprint, files, {**counts, "entries": entries})]
    )


def _settings(recipe: str, params: bpe.TokenizerChoice) -> dict[str, Any]:
    return json.loads(canonical_json({"recipe": recipe, "tokenizer": params}))


def _in_store(store: Store, recipe: str, params: bpe.TokenizerChoice) -> Work | None:
    """What made the recipe's tokenizer from whatever the corpora were then: the one in use, else (another was
    in between) the newest.
    """
    asked = _settings(recipe, params)
    in_use = store.current(keys.TOKENIZER).fingerprint if store.has(keys.TOKENIZER) else None
    found = []
    for path in store.directory(keys.TOKENIZER).glob("*/manifest.json"):
        manifest = json.loads(path.read_text())
        work = Work(keys.TOKENIZER, bpe.VERSION, manifest["params"], manifest["inputs"])
        if (
            asked.items() <= manifest["params"].items()
            and work.fingerprint == manifest["fingerprint"]
            and store.find(work)
        ):
            found.append((work.fingerprint == in_use, manifest["finished"], work))
    return max(found, key=itemgetter(0, 1))[2] if found else None


def input_keys(corpora: Sequence[str]) -> list[str]:
    """What decides which text there is to train on and to hold out."""
    return [keys.DEDUP, *(key for corpus in corpora for key in keys.judged(corpus))]
