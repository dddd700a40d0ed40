"""Kept documents -> token shards of one corpus, train and validation apart, one shard of each for every part."""

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from pipeline.engine import Engine
from pipeline.flows.kept import decision_name
from pipeline.flows.parts import PartTask, add, derive
from pipeline.parquet import kept_batches
from pipeline.stages import tokenizer as bpe
from pipeline.stages.params import Params
from pipeline.store import File, Part, Store, Version, Work
from trainer.shards import ShardWriter, token_dtype

VERSION = "shards-1"
SPLITS = ("train", "validation")


class ShardParams(Params):
    """Which documents are held out. The choice is a function of the document's id alone, made before tokenizing."""

    validation_fraction: float = Field(0.02, gt=0, lt=0.5, description="Share of the documents of each corpus that is held out for validation.")


def tokenize(store: Store, engine: Engine, corpus: str, params: ShardParams, specials: bpe.TokenizerParams) -> Version:
    """The token shards of a corpus: Megatron `.bin`/`.idx`, uint16 or uint32 by the tokenizer's largest id."""
    scrubbed, quality = store.current(f"corpora/{corpus}/scrubbed"), store.current(f"corpora/{corpus}/quality")
    dedup, tokenizer = store.current("dedup"), store.current("tokenizer")
    verdicts = {part.name: part for part in quality.parts}
    decisions = {part.name: part for part in dedup.parts}
    sources = [(part, verdicts[part.name], decisions[decision_name(corpus, part.name)]) for part in scrubbed.parts]
    inputs = {"tokenizer": tokenizer.data_version, scrubbed.key: scrubbed.data_version, quality.key: quality.data_version}
    # Only this corpus's decisions: a change in another corpus that decides nothing here leaves these shards as they are.
    inputs |= {f"dedup/{part.name}": decided.data_version for part, _, decided in sources}
    settings = {"shards": params, "specials": specials.specials}
    work = Work(f"token_shards/{corpus}", VERSION, settings, inputs)
    tasks = []
    for document_part, verdict_part, decision in sources:
        files = (scrubbed.file(document_part, "documents"), quality.file(verdict_part, "verdicts"), dedup.file(decision, "decisions"))
        hashes = [document_part.files["documents"].sha256, verdict_part.data_version, decision.data_version, tokenizer.data_version]
        tasks.append(PartTask(document_part.name, work.part_fingerprint(hashes), files, files[0].stat().st_size))
    function = partial(_tokenize_part, tokenizer=tokenizer.path / "tokenizer.json", specials=specials, params=params)
    return derive(store, engine, work, tasks, function)


def _tokenize_part(task: PartTask, directory: Path, tokenizer: Path, specials: bpe.TokenizerParams, params: ShardParams) -> Part:
    encoder = bpe.Encoder(tokenizer.read_text(encoding="utf-8"), specials)
    counts = {f"{split}_{what}": 0 for split in SPLITS for what in ("documents", "tokens", "text_bytes")} | {"empty_documents": 0}
    dtype = token_dtype(encoder.max_id)
    files: dict[str, File] = {}
    writers = {split: ShardWriter(directory / split / task.name, dtype) for split in SPLITS}
    with writers["train"], writers["validation"]:
        for batch in kept_batches(task.inputs[0], list(task.inputs[1:]), ["id", "text"]):
            held_out = bpe.share_of(batch.column("id"), "validation") < params.validation_fraction
            for split, chosen in (("train", ~held_out), ("validation", held_out)):
                add(counts, _write(writers[split], split, batch.column("text").filter(pa.array(chosen)), encoder))
    for split in SPLITS:
        for suffix in ("bin", "idx"):
            path = directory / split / f"{task.name}.{suffix}"
            files[f"{split}.{suffix}"] = File.of(path, directory)
    return Part(task.name, task.fingerprint, files, counts)


def _write(writer: ShardWriter, split: str, texts: pa.Array, encoder: bpe.Encoder) -> dict[str, int]:
    sizes = pc.binary_length(texts)
    filled = texts.filter(pc.greater(sizes, 0))
    ids, lengths = encoder.encode(filled)
    writer.add_documents(ids, lengths)
    return {
        f"{split}_documents": len(lengths),
        f"{split}_tokens": int(np.sum(lengths)),
        f"{split}_text_bytes": pc.sum(sizes).as_py() or 0,
        "empty_documents": len(texts) - len(filled),
    }
