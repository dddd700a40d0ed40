"""Finds out what happened to a document, and which checkpoints were trained on it.

Exact, down to the window: the place of the document in the shards follows from the tables of its part, and
the inverse of the order of samples gives the steps at which a window was trained on. If a run was resumed
with another order of samples, the answer is that of the last order.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
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
from pipeline.store.keys import RUNS, SPLITS, TRAIN, VALIDATION
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import kept_batches, read_table
from pipeline.store.removed import Removed
from pipeline.store.store import Store, StoreError
from pipeline.store.training_runs import run_histories
from trainer.config import OPERATIONAL, RunConfig, TrainingConfig
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
    """How many of the `windows` that hold tokens of a document a checkpoint was trained on (`seen`), how
    often in total (`times`), and the `first` and the `last` step: in its own training, or in that of an
    ancestor, `through`.
    """

    checkpoint: Checkpoint
    place: Place
    windows: int = 0
    seen: int = 0
    times: int = 0
    first: int | None = None
    last: int | None = None
    through: Trained | None = None


@dataclass(frozen=True)
class Untraceable:
    """An ancestor of a checkpoint whose run or documents are in no store that could be found."""

    checkpoint: Checkpoint
    through: Trained


@dataclass(frozen=True)
class Training:
    """A training run, and when it read what. Steps count from 1, as in the names of checkpoints."""

    run: Path

    @cached_property
    def config(self) -> RunConfig:
        return run_config(self.run)

    @cached_property
    def data(self) -> TrainingData:
        return TrainingData(self.config.data, self.config.training, self.run / "packing")

    def readings(
        self, corpus: str, begin: int, end: int, until_step: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The windows that hold any of the tokens `begin` to `end` - 1 of a corpus; and of each time that the
        run read one of them, the place among the windows and the step.
        """
        number, curriculum = self.data.order.names.index(corpus), self.config.training.curriculum
        windows = self.data.holding(number, begin, end)
        which, samples = self.data.order.reads(number, windows, curriculum.samples(until_step))
        steps = [curriculum.step_reading(sample) + 1 for sample in samples.tolist()]
        return windows, which, np.array(steps, np.int64)


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
        for ancestor, home in homes(store, together[0]):
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
    training = Training(run)
    for one in together:
        windows, which, steps = training.readings(place.corpus, place.begin, place.end, one.step)
        ends = (int(steps.min()), int(steps.max())) if len(steps) else (None, None)
        yield Seen(one, place, len(windows), len(np.unique(which)), len(which), *ends)


def locate(store: Store, assets: Mapping[str, Any], named: str) -> Place | None:
    """Where the document is in the versions that a lineage names; None when no corpus holds it. `named`: its
    id in the store, or the id that its source gives it.
    """
    for corpus in keys.corpora_with_shards(assets):
        text = CorpusText(store, assets, corpus)
        held = _holding(text.scrubbed, {named, document_id(corpus, own_id(named))})
        if held is None:
            continue
        part, document = held[0].name, held[1]
        if reason := _rejected(text.tables(part), document):
            return Place(corpus, document, reason)
        return text.place(part, document)
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


@dataclass(frozen=True)
class Held:
    """A document of the training text, and its tokens `begin` to `end` - 1 in the stream of the corpus."""

    document: str
    source: str | None
    url: str | None
    part: str
    begin: int
    end: int


class CorpusText:
    """The documents of a corpus in the versions that a lineage names, and where they are in its shards: those
    of each split hold the kept documents in the order of the part.
    """

    def __init__(self, store: Store, assets: Mapping[str, Any], corpus: str):
        self.corpus = corpus
        wanted = (keys.token_shards(corpus), *keys.judged(corpus), keys.DEDUP)
        opened = (store.open(key, Path(assets[key]["path"]).name) for key in wanted)
        self.version, self.scrubbed, self._quality, self._dedup = opened
        self._written: dict[tuple[str, str], pa.Table] = {}

    @cached_property
    def train_shards(self) -> list[Shard]:
        return [Shard(prefix) for prefix in prefixes(self.version, TRAIN)]

    def tables(self, part: str) -> list[StoredFile]:
        """The verdicts of quality and the decisions of dedup on a part."""
        decisions = self._dedup.named(keys.decisions(self.corpus, part), "decisions")
        return [self._quality.named(part, "verdicts"), decisions]

    def written(self, part: str, split: str) -> pa.Table:
        """The documents of a part that are in the shards of a split: `id`, `source`, `url`."""
        if (part, split) not in self._written:
            documents = self.scrubbed.named(part, "documents")
            kept = kept_batches(documents, self.tables(part), ["id", "source", "url"])
            table = pa.Table.from_batches(list(kept)).combine_chunks()
            ids = table.column("id").combine_chunks()
            left_out = list(self._left_out(part))
            validates = bpe.held_out(ids, self.version.manifest["params"]["validation_fraction"])
            has_text = ~np.isin(ids.to_numpy(zero_copy_only=False).astype(str), left_out)
            self._written[part, split] = table.filter(
                pa.array((validates == (split == VALIDATION)) & has_text)
            )
        return self._written[part, split]

    def place(self, part: str, document: str) -> Place:
        """The place of a document that was kept. Raises LineageError where the shards lack it."""
        for split in SPLITS:
            number = pc.index(self.written(part, split).column("id"), document).as_py()
            for shard, of, before, begin in _placed(map(Shard, prefixes(self.version, split))):
                if of == part and before <= number < before + shard.num_documents:
                    begin += int(shard.lengths[: number - before].sum(dtype=np.int64))
                    end = begin + int(shard.lengths[number - before])
                    return Place(
                        self.corpus, document, None, split, shard.prefix, number - before, begin, end
                    )
            if number >= 0:
                raise LineageError(
                    f"{self.version.path} has fewer documents than were kept: `python -m pipeline "
                    "inspect-shards --verify` says what is wrong"
                )
        return Place(self.corpus, document, self._left_out(part)[document])

    def _left_out(self, part: str) -> dict[str, str]:
        """Why documents of a part that were kept are in no shard."""
        record = json.loads(self.version.named(part, "shards").read_text())
        found = dict.fromkeys(record["empty_documents"], "without text")
        return found | dict.fromkeys(record.get("too_long", []), "too long for the context of the model")

    def between(self, begin: int, end: int) -> Iterator[Held]:
        """The documents that hold any of these tokens of the corpus' stream."""
        while begin < end:
            yield (held := self.at(begin))
            begin = held.end

    def ranges(self, documents: Removed) -> Iterator[tuple[int, int]]:
        """The tokens `begin` to `end` - 1 of the documents that are trained on, in the corpus' stream;
        neighbours together.
        """
        for shard, part, before, begin in _placed(self.train_shards):
            ids = self.written(part, TRAIN).column("id").slice(before, shard.num_documents)
            ends = begin + np.cumsum(shard.lengths, dtype=np.int64)
            numbers = np.flatnonzero(documents.among(ids))
            for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1) if len(numbers) else ():
                yield int(ends[run[0]]) - int(shard.lengths[run[0]]), int(ends[run[-1]])

    def at(self, position: int) -> Held:
        """The document that holds this token of the corpus' stream. Raises IndexError outside of it."""
        for shard, part, before, begin in _placed(self.train_shards):
            if position < begin + shard.num_tokens:
                ends = begin + np.cumsum(shard.lengths, dtype=np.int64)
                number = int(np.searchsorted(ends, position, side="right"))
                row = self.written(part, TRAIN).slice(before + number, 1).to_pylist()[0]
                end = int(ends[number])
                return Held(row["id"], row["source"], row["url"], part, end - int(shard.lengths[number]), end)
        raise IndexError(f"token {position} is not in the stream of corpus {self.corpus}")


def texts_read(store: Store, lineage: Mapping[str, Any]) -> dict[str, CorpusText]:
    """As `texts_of`, by the names that the run knows, with the corpora of the pretraining that a tuned model
    reads again.
    """
    found = texts_of(store, lineage)
    if lineage.get("post_training", {}).get("rehearsal"):
        again = texts_of(store, Trained(dict(lineage)).pretraining.lineage)
        found |= {f"{keys.REHEARSAL}{name}": text for name, text in again.items()}
    return found


def texts_of(store: Store, lineage: Mapping[str, Any]) -> dict[str, CorpusText]:
    """The training text of each corpus that a lineage names. Raises LineageError where there is none, or no
    longer.
    """
    if not lineage.get("assets"):
        raise LineageError("its run has no lineage, since no recipe planned it: nobody knows its documents")
    corpora = keys.corpora_with_shards(lineage["assets"])
    try:
        return {corpus: CorpusText(store, lineage["assets"], corpus) for corpus in corpora}
    except StoreError as error:
        raise LineageError(
            f"{error}; if `gc` removed it, `python -m pipeline reproduce RUN-STEP -o OUT` prints commands "
            "that make it again"
        ) from error


def _placed(shards: Iterable[Shard]) -> Iterator[tuple[Shard, str, int, int]]:
    """Each shard, its part, and how many documents of the part and tokens of the corpus are before it."""
    before, begin = Counter[str](), 0
    for shard in shards:
        part = shard.prefix.name.rpartition(".")[0]
        yield shard, part, before[part], begin
        before[part], begin = before[part] + shard.num_documents, begin + shard.num_tokens


def homes(store: Store, one: Checkpoint) -> Iterator[tuple[Trained, tuple[Store, Path] | None]]:
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
