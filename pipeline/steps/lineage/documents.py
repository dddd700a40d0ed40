"""The documents that a lineage names: what happened to each, and where it lies in the token shards."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.documents import document_id, own_id, title
from pipeline.stages.held_out import held_out
from pipeline.steps.lineage.checkpoints import LineageError, TrainedModel
from pipeline.steps.lineage.lineage_versions import version_of
from pipeline.steps.tokens.shards import prefixes
from pipeline.store import keys
from pipeline.store.files import StoredFile
from pipeline.store.forgotten import among
from pipeline.store.keys import TRAIN, Key
from pipeline.store.parquet import batches, kept_batches, read_table
from pipeline.store.store import Store, StoreError
from trainer.data.shards import Shard
from trainer.system.durable import read_json


@dataclass(frozen=True)
class PlacedDocument:
    """A document of the training text, and its tokens `begin` to `end` - 1 in the stream of the corpus.
    `title`: what people call it, if its source says.
    """

    corpus: str
    document: str
    source: str | None
    url: str | None
    begin: int
    end: int
    title: str | None


class CorpusText:
    """The documents of a corpus in the versions that a lineage names, and where they are in its shards: those
    of each split hold the kept documents in the order of the part.
    """

    def __init__(self, store: Store, assets: Mapping[str, Any], corpus: str):
        self.corpus = corpus
        wanted = (keys.token_shards(corpus), *keys.judged(corpus), keys.DEDUP)
        opened = (version_of(store, assets, key) for key in wanted)
        self.version, self.scrubbed, self._quality, self._dedup = opened
        self._written: dict[str, pa.Table] = {}

    @cached_property
    def train_shards(self) -> list[Shard]:
        return [Shard(prefix) for prefix in prefixes(self.version, TRAIN)]

    def holding(self, named: Collection[str]) -> dict[str, list[str]]:
        """The parts that hold documents with these ids, the store's or the source's: the store's, by part."""
        wanted = {*named, *(document_id(self.corpus, own_id(name)) for name in named)}
        found: dict[str, list[str]] = {}
        for part in self.scrubbed.parts:
            for batch in batches(self.scrubbed.file(part, "documents"), ["id"]):
                ids = batch.column("id")
                if (hits := among(wanted, ids)).any():
                    found.setdefault(part.name, []).extend(ids.filter(pa.array(hits)).to_pylist())
        return found

    def fates(self, holding: Mapping[str, list[str]]) -> dict[str, str]:
        """Why each of these documents is in the training text, or not."""
        return {document: self._fate(part, document) for part, ids in holding.items() for document in ids}

    def _fate(self, part: str, document: str) -> str:
        same = pc.field("id") == document
        rows = (read_table(table, filters=same).to_pylist()[0] for table in self._tables(part))
        if not (verdict := next(rows))["keep"]:
            return f"rejected by quality: {verdict['rule']}"
        if not (decision := next(rows))["keep"]:
            stays = f", for {decision['duplicate_of']}" if decision["duplicate_of"] else ""
            return f"removed by dedup: {decision['reason']}{stays}"
        validates = self._held_out(pa.array([document]))[0]
        kept = "held out for validation" if validates else "in the training text"
        return self._left_out(part).get(document, kept)

    def ranges(self, holding: Mapping[str, list[str]]) -> Iterator[tuple[int, int]]:
        """The tokens `begin` to `end` - 1 in the corpus' stream of those of these documents that are trained
        on, neighbors together.
        """
        for shard, part, before, begin in self._placed():
            if part not in holding:
                continue
            ids = self.written(part).column("id").slice(before, shard.num_documents)
            ends = begin + np.cumsum(shard.lengths, dtype=np.int64)
            numbers = np.flatnonzero(among({*holding[part]}, ids))
            for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1) if len(numbers) else ():
                yield int(ends[run[0]]) - int(shard.lengths[run[0]]), int(ends[run[-1]])

    def between(self, begin: int, end: int) -> Iterator[PlacedDocument]:
        """The documents that hold any of these tokens of the corpus' stream."""
        while begin < end:
            yield (held := self.at(begin))
            begin = held.end

    def at(self, position: int) -> PlacedDocument:
        """The document that holds this token of the corpus' stream. Raises IndexError outside of it."""
        for shard, part, before, begin in self._placed():
            if position < begin + shard.num_tokens:
                ends = begin + np.cumsum(shard.lengths, dtype=np.int64)
                number = int(np.searchsorted(ends, position, side="right"))
                row = self.written(part).slice(before + number, 1).to_pylist()[0]
                end = int(ends[number])
                begin = end - int(shard.lengths[number])
                called = title(row["metadata"], row["url"])
                return PlacedDocument(self.corpus, row["id"], row["source"], row["url"], begin, end, called)
        raise IndexError(f"token {position} is not in the stream of corpus {self.corpus}")

    def written(self, part: str) -> pa.Table:
        """The documents of a part that are in the train shards: `id`, `source`, `url`, `metadata`."""
        if part not in self._written:
            documents = self.scrubbed.named(part, "documents")
            kept = kept_batches(documents, self._tables(part), ["id", "source", "url", "metadata"])
            table = pa.Table.from_batches(list(kept)).combine_chunks()
            ids = table.column("id").combine_chunks()
            trained = ~(self._held_out(ids) | among(self._left_out(part), ids))
            self._written[part] = table.filter(pa.array(trained))
        return self._written[part]

    def _placed(self) -> Iterator[tuple[Shard, str, int, int]]:
        """Each train shard, its part, and the part's documents and the corpus's tokens before it."""
        before, begin = Counter[str](), 0
        for shard in self.train_shards:
            part = shard.prefix.name.rpartition(".")[0]
            yield shard, part, before[part], begin
            before[part], begin = before[part] + shard.num_documents, begin + shard.num_tokens

    def _tables(self, part: str) -> list[StoredFile]:
        """The verdicts of quality and the decisions of dedup on a part."""
        decisions = self._dedup.named(keys.DecidedPart(self.corpus, part).name, "decisions")
        return [self._quality.named(part, "verdicts"), decisions]

    def _held_out(self, ids: pa.Array) -> np.ndarray:
        return held_out(ids, self.version.manifest["params"]["validation_fraction"])

    def _left_out(self, part: str) -> dict[str, str]:
        """Why documents of a part that were kept are in no shard."""
        record = read_json(self.version.named(part, "shards"))
        found = dict.fromkeys(record["empty_documents"], "without text")
        return found | dict.fromkeys(record.get("too_long", []), "too long for the context of the model")


def texts_read(store: Store, lineage: Mapping[str, Any]) -> dict[str, CorpusText]:
    """As `texts_of`, by the names that the run knows, with the corpora of a tuned model's pretraining."""
    found = texts_of(store, lineage)
    if lineage.get("post_training", {}).get("rehearsal"):
        again = texts_of(store, TrainedModel(lineage).pretraining.lineage)
        found |= {f"{keys.REHEARSAL}{name}": text for name, text in again.items()}
    return found


def texts_of(store: Store, lineage: Mapping[str, Any]) -> dict[str, CorpusText]:
    """The training text of each corpus of a lineage. Raises LineageError if there is none, or no longer."""
    if not lineage.get("assets"):
        raise LineageError(
            "its run has no lineage, since no recipe planned it, so its documents are not known"
        )
    named = map(Key.from_path, lineage["assets"])
    corpora = [key.corpus for key in named if key.stage == keys.TOKEN_SHARDS]
    try:
        return {corpus: CorpusText(store, lineage["assets"], corpus) for corpus in corpora}
    except StoreError as error:
        raise LineageError(
            f"{error}; if `gc` removed it, `python -m pipeline reproduce RUN-STEP -o OUT` prints commands "
            "that make it again, without what was forgotten"
        ) from error
