"""The scrubbed text of some corpora -> quality_model: a classifier that filters read."""

import json

import numpy as np
import pyarrow as pa

from pipeline.plugins.settings import OWN_MODEL
from pipeline.stages import quality_model
from pipeline.stages.tokenizer import share_of
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import File, Part, Version
from pipeline.store.parquet import batches
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.system.durable import write_atomically

VERSION, FACTS = "quality-model-1", "facts.json"
DOCUMENTS = 20_000  # as many of each corpus, chosen by id
LEAST = 10  # of each side, to be held out


def train(store: Store, engine: Engine, params: quality_model.QualityModelParams) -> Version:
    """The classifier in fastText's format, and FACTS. Raises PipelineError for few documents."""
    with store.making(train_work(store, params)) as draft:
        if isinstance(draft, Version):
            return draft
        texts, corpora, shares = [], [], []
        for number, key in enumerate(read(params)):
            wanted = DOCUMENTS / len(read(params)) / store.current(key).counts["documents"]
            for path in store.current(key).files("documents"):
                for batch in batches(path, ["id", "text"]):
                    chosen = batch.filter(pa.array(share_of(batch.column("id"), "quality model") < wanted))
                    texts.append(quality_model.windows(chosen.column("text")))
                    corpora.append(np.full(chosen.num_rows, number))
                    shares.append(share_of(chosen.column("id"), "quality split"))
        corpus, share = np.concatenate(corpora), np.concatenate(shares)
        positive, names = corpus < len(params.positive), params.positive + params.negative
        if np.bincount(positive[share < quality_model.HELD_OUT], minlength=2).min() < LEAST:
            raise PipelineError("quality_model: too few documents to hold some out: name larger corpora")
        model, facts = quality_model.train(pa.concat_arrays(texts), corpus, positive, share, names)
        files = {}
        for name, content in {OWN_MODEL: model, FACTS: json.dumps(facts).encode()}.items():
            write_atomically(made := draft.path / name, content)
            files[name] = File.of(made, draft.path)
        return draft.publish([Part(OWN_MODEL, draft.work.fingerprint, files, {"documents": len(share)})])


def train_work(store: Store, params: quality_model.QualityModelParams) -> Work:
    return Work(keys.QUALITY_MODEL, VERSION, params, store.data_versions(read(params)))


def read(params: quality_model.QualityModelParams) -> list[str]:
    """The keys that the classifier is made from."""
    return list(map(keys.scrubbed, params.positive + params.negative))
