"""Finds out what happened to a document, and which checkpoints were trained on it.

Exact, down to the window: the place of the document in the shards follows from the tables of its part, and
the inverse of the order of samples gives the steps at which a window was trained on. If a run was resumed
with another order of samples, the answer is that of the last order.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.documents import document_id, own_id
from pipeline.stages import tokenizer as bpe
from pipeline.steps.lineage.checkpoints import Checkpoint, LineageError, Trained, checkpoints, run_config
from pipeline.steps.tokens.shards import prefixes
from pipeline.store import keys
from pipeline.store.files import StoredFile
from pipeline.store.keys import RUNS, TRAIN, VALIDATION
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import kept_batches, read_table
from pipeline.store.store import Store, StoreError
from pipeline.store.training_runs import run_histories
from trainer.config import OPERATIONAL, TrainingConfig
from trainer.data.loader import TrainingData
from trainer.data.shards import Shard


@dataclass(frozen=True)
class Place:
    """Where a document is: why it was not kept, or its shard, its number there, and its tokens in the stream
    of the corpus in that split.
    """

    corpus: str
    document: str  # its id in the store, also when it was asked for by the source's id
    rejected: str | None = None
    split: str = TRAIN
    shard: Path | None = None
    number: int = 0
    begin: int = 0
    end: int = 0


@dataclass(frozen=True)
class Seen:
    """How many of the `windows` that hold tokens of a document a checkpoint was trained on (`seen`), and how
    often in total (`times`): in its own training, or in that of an ancestor, `through`.
    """

    checkpoint: Checkpoint
    place: Place
    windows: int = 0
    seen: int = 0
    times: int = 0
    through: Trained | None = None


@dataclass(frozen=True)
class Untraceable:
    """An ancestor of a checkpoint whose run or documents are in no store that could be found."""

    checkpoint: Checkpoint
    through: Trained


def seen(store: Store, document: str) -> tuple[list[Seen], list[Untraceable]]:
    """For each checkpoint on disk whose corpora, or those of its ancestors, hold the document; and the
    ancestors that cannot be asked. `document`: its id in the store, or the id that its source gives it.

    Raises LineageError when there is no answer at all.
    """
    by_shards: dict[tuple[Path, str], list[Checkpoint]] = defaultdict(list)
    for one in checkpoints(store):
        by_shards[one.run, str(one.lineage["assets"])].append(one)
    found: list[Seen] = []
    untraceable: list[Untraceable] = []
    for (run, _), together in by_shards.items():
        found += _of_run(store, run, together, document)
        for ancestor, home in _homes(store, together[0]):
            answers = _of_ancestor(ancestor, home, document)
            found += [
                replace(answer, checkpoint=one, through=ancestor)
                for one in together
                for answer in answers or ()
            ]
            untraceable += [Untraceable(one, ancestor) for one in together if answers is None]
    if not found and not untraceable:
        raise LineageError(
            f"no checkpoint on disk was trained on a corpus that contains document {document!r}: was it set "
            "aside, or is it in another store?"
        )
    return found, untraceable


def _of_ancestor(ancestor: Trained, home: tuple[Store, Path] | None, document: str) -> list[Seen] | None:
    """What the ancestor has seen of the document; None when the run or its documents are gone."""
    if home is None:
        return None
    store, run = home
    step = ancestor.lineage["training"]["step"]
    try:
        return list(_of_run(store, run, [Checkpoint(ancestor.lineage, run, step, saved=False)], document))
    except (StoreError, OSError):
        return None


def _of_run(store: Store, run: Path, together: list[Checkpoint], document: str) -> Iterator[Seen]:
    place = locate(store, together[0].lineage["assets"], document)
    if place is None:
        return
    if place.shard is None or place.split != TRAIN:
        yield from (Seen(one, place) for one in together)
        return
    config = run_config(run)
    data = TrainingData(config.data, config.training, run / "packing")
    corpus = data.order.names.index(place.corpus)
    windows = data.holding(corpus, place.begin, place.end)
    for one in together:
        times = data.order.times_seen(corpus, windows, config.training.curriculum.samples(one.step))
        yield Seen(one, place, len(windows), int((times > 0).sum()), int(times.sum()))


def locate(store: Store, assets: dict[str, Any], named: str) -> Place | None:
    """Where the document is in the versions that a lineage names; None when no corpus holds it. `named`: its
    id in the store, or the id that its source gives it.
    """

    def version(key: str) -> Version:
        return store.open(key, Path(assets[key]["path"]).name)

    for corpus in keys.corpora_with_shards(assets):
        scrubbed = version(keys.scrubbed(corpus))
        held = _holding(scrubbed, {named, document_id(corpus, own_id(named))})
        if held is None:
            continue
        part, document = held
        tables = [
            version(keys.quality(corpus)).named(part.name, "verdicts"),
            version(keys.DEDUP).named(keys.decisions(corpus, part.name), "decisions"),
        ]
        if reason := _rejected(tables, document):
            return Place(corpus, document, reason)
        shards = version(keys.token_shards(corpus))
        return _in_shards(corpus, scrubbed.file(part, "documents"), tables, shards, part.name, document)
    return None


def _holding(scrubbed: Version, ids: set[str]) -> tuple[Part, str] | None:
    """The part that holds a document with one of these ids, and which of them."""
    wanted = pc.field("id").isin(list(ids))
    for part in scrubbed.parts:
        found = read_table(scrubbed.file(part, "documents"), columns=["id"], filters=wanted)
        if found.num_rows:
            return part, found.column("id")[0].as_py()
    return None


def _rejected(tables: list[StoredFile], document: str) -> str | None:
    """Why the document was not kept."""
    verdicts, decisions = tables
    same = pc.field("id") == document
    (verdict,) = read_table(verdicts, filters=same).to_pylist()
    if not verdict["keep"]:
        return f"rejected by quality: {verdict['rule']}"
    (decision,) = read_table(decisions, filters=same).to_pylist()
    if decision["keep"]:
        return None
    return f"removed by dedup: {decision['reason']}, for {decision['duplicate_of']}"


def _in_shards(
    corpus: str, documents: StoredFile, tables: list[StoredFile], shards: Version, part: str, document: str
) -> Place:
    """The place of a kept document: the shards of each split hold the kept documents in the order of the
    part.
    """
    fraction = shards.manifest["params"]["validation_fraction"]
    validates = bpe.held_out(pa.array([document]), fraction)[0]
    split = VALIDATION if validates else TRAIN
    record = json.loads(shards.named(part, "shards").read_text())
    left_out = dict.fromkeys(record["empty_documents"], "without text")
    left_out |= dict.fromkeys(record.get("too_long", []), "too long for the context of the model")
    if document in left_out:
        return Place(corpus, document, left_out[document])
    ids = pa.concat_arrays([batch.column("id") for batch in kept_batches(documents, tables, ["id"])])
    before = ids.slice(0, pc.index(ids, document).as_py())
    with_text = np.array([one not in left_out for one in before.to_pylist()], np.bool_)
    number = int(((bpe.held_out(before, fraction) == validates) & with_text).sum())
    begin = 0
    for prefix in prefixes(shards, split):
        shard = Shard(prefix)
        if prefix.name.rpartition(".")[0] == part:
            if number < shard.num_documents:
                begin += int(shard.lengths[:number].sum(dtype=np.int64))
                end = begin + int(shard.lengths[number])
                return Place(corpus, document, None, split, prefix, number, begin, end)
            number -= shard.num_documents
        begin += shard.num_tokens
    raise LineageError(
        f"{shards.path} has fewer documents than were kept: `python -m pipeline inspect-shards --verify` "
        "says what is wrong"
    )


def _homes(store: Store, one: Checkpoint) -> Iterator[tuple[Trained, tuple[Store, Path] | None]]:
    """Each ancestor of a checkpoint, with a run that read the same samples in the same order and the store
    that holds it: this store, or one in which the weights still lie. None: there is no such run.
    """
    stores = [store]
    child: Trained = one
    for ancestor in one.ancestors:
        weights = Path(child.lineage["training"]["config"]["pretrained"]["path"] or "")
        parents = weights.resolve().parents if weights.is_absolute() else ()
        stores += [Store(parent) for parent in parents if (parent / RUNS).is_dir()]
        runs = ((place, run.path) for place in stores for run in run_histories(place))
        found = ((place, run) for place, run in runs if _trained_alike(run, ancestor))
        yield ancestor, next(found, None)
        child = ancestor


def _trained_alike(run: Path, ancestor: Trained) -> bool:
    config = run_config(run)
    return _order(config.lineage, config.training) == _order(
        ancestor.lineage, TrainingConfig.model_validate(ancestor.lineage["training"]["config"])
    )


def _order(lineage: dict[str, Any], training: TrainingConfig) -> Any:
    """What decides which samples are read, and when."""
    recipe, assets, read = lineage["recipe"], lineage["assets"], (keys.TOKENIZER, keys.token_shards(""))
    return (
        {key: asset["data_version"] for key, asset in assets.items() if key.startswith(read)},
        [(corpus["name"], corpus.get("weight")) for corpus in recipe["corpora"]],
        recipe.get("mixture"),
        training.model_dump(mode="json", exclude={*OPERATIONAL, "pretrained"}),
    )
