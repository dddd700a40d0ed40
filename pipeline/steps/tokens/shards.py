"""Kept documents -> token shards of one corpus, by split. Each part has its own shards."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.recipe.recipe import Recipe
from pipeline.recipe.sections import ShardParams
from pipeline.stages import bpe, chat
from pipeline.stages.held_out import held_out
from pipeline.steps.stage import CorpusStage, Page
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS, TRAIN, VALIDATION, Key
from pipeline.store.manifest import File, Part, Version
from pipeline.store.params import ROLE, ROLES
from pipeline.store.parquet import Readable, kept_batches
from pipeline.store.parts import PartTask, derive
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG
from trainer.data.message_tokenizer import for_messages
from trainer.data.shard_writer import ShardWriter, token_dtype
from trainer.data.shards import bin_path, idx_path
from trainer.system.durable import write_atomically
from trainer.system.prefetch import ahead

VERSION = "shards-2"
MESSAGES = " messages-2"  # where a message has other tokens than a text
# One process encodes on all cores and reads ahead: two pay only on so many times the usual input.
PROCESSES_PAY_LATER = 8
COMPARED_BYTES = 256_000  # of held-out text in each part
# Counts of the text, held out if some is, that was compared with what its tokens give back, if some was lost.
LOST, COMPARED = "validation_lost_bytes", "validation_compared_bytes"
COUNTED = ("documents", "tokens", "text_bytes")
# Ids of documents, which of them are written, bytes of text, flat token ids, tokens of each document.
Encoded = tuple[pa.Array, np.ndarray, np.ndarray, np.ndarray, np.ndarray]

NOT_GIVEN_BACK = (
    "%s: the tokenizer does not give back %s of %s, so its bits per byte say nothing, and none are measured"
)
SLOW = "encoding 50 times slower with `tokenizers`: the fast encoder does not support this tokenizer: %s"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenShards(CorpusStage):
    """The token shards of a corpus: Megatron `.bin` and `.idx`, uint16 or uint32 by the largest id."""

    params: ShardParams

    name = keys.TOKEN_SHARDS
    version = VERSION
    page = Page(
        "The kept documents of this corpus as token ids, in memory-mapped Megatron shards. Held-out "
        "documents have their own shards.",
        kinds=("memmap",),
        group="token_shards",
        job="retokenize",
        numbers={
            "train tokens": "train_tokens",
            "validation tokens": "validation_tokens",
            "train documents": "train_documents",
            "validation documents": "validation_documents",
            "documents without text": "empty_documents",
            "parts that the fast encoder got wrong": "encoder_fallbacks",
        },
    )

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        return [cls(corpus, recipe.shard_params)]

    @property
    def inputs(self) -> Sequence[Key]:
        return [*keys.judged(self.corpus), keys.DEDUP, keys.TOKENIZER]

    def work(self, store: Store) -> Work:
        scrubbed, quality, dedup, tokenizer = map(store.current, self.inputs)
        inputs = {str(version.key): version.data_version for version in (tokenizer, scrubbed, quality)}
        decided = _decided(scrubbed, dedup)
        inputs |= {
            str(Key(keys.DEDUP, name=name)): decision.data_version for name, decision in decided.items()
        }
        version = self.version
        if self.params.longest is not None:
            settings = TokenizerFiles.read(tokenizer.directory()).tokenizer_json
            version += MESSAGES if for_messages(settings) != settings else ""
        return Work(self.key, version, self.params, inputs)

    def make(self, store: Store, engine: Engine) -> Version:
        work, tokenizer = self.work(store), store.current(keys.TOKENIZER)
        slow = bpe.unsupported(TokenizerFiles.read(tokenizer.directory()).tokenizer_json)
        if slow:
            log.info(f"%s: {SLOW}", self.key, slow)
        used = tokenizer.only(TOKENIZER), tokenizer.only(TOKENIZER_CONFIG)
        write = partial(tokenize_part, tokenizer=used, params=self.params, fast=slow is None)
        version = derive(store, engine, work, self._tasks(store, work), write)
        fallbacks = version.counts["encoder_fallbacks"]
        if fallbacks and not version.reused:
            log.warning("%s: %d parts were encoded by `tokenizers` after a mismatch", self.key, fallbacks)
        warn_of_loss(self.key, version.counts)
        return version

    def _tasks(self, store: Store, work: Work) -> list[PartTask]:
        scrubbed, quality, dedup, tokenizer = map(store.current, self.inputs)
        verdicts = {part.name: part for part in quality.parts}
        decided = _decided(scrubbed, dedup)
        tasks = []
        for part in scrubbed.parts:
            verdict, decision = verdicts[part.name], decided[part.name]
            files = (
                scrubbed.file(part, "documents"),
                quality.file(verdict, "verdicts"),
                dedup.file(decision, "decisions"),
            )
            made_from = [verdict.data_version, decision.data_version, tokenizer.data_version]
            fingerprint = work.part_fingerprint([part.files["documents"].sha256, *made_from])
            size = part.files["documents"].bytes // PROCESSES_PAY_LATER
            tasks.append(PartTask(part.name, fingerprint, files, size))
        return tasks


def warn_of_loss(what: str, counts: Mapping[str, int]) -> None:
    """Says how much of the text its tokens do not give back."""
    if lost := counts.get(LOST):
        which = "the held-out text" if counts["validation_documents"] else "the text"
        log.warning(NOT_GIVEN_BACK, what, f"{lost / counts[COMPARED]:.1%}", which)


def _decided(scrubbed: Version, dedup: Version) -> dict[str, Part]:
    """The decisions on each part of a corpus. Only these are inputs of its shards, so that a change in other
    corpora that decides nothing here leaves the shards valid.
    """
    corpus = scrubbed.key.corpus
    decisions = {part.name: part for part in dedup.parts}
    return {part.name: decisions[keys.DecidedPart(corpus, part.name).name] for part in scrubbed.parts}


def prefixes(version: Version, split: str) -> list[Path]:
    """The paths of a split's shards by part, to be opened now: add `.bin` and `.idx`."""
    found = named(version, split)
    version.store_files.fetch_all([path(prefix) for prefix in found for path in (bin_path, idx_path)])
    return found


def named(version: Version, split: str) -> list[Path]:
    """The paths that `prefixes` returns, for shards that another process opens."""
    return [
        version.file(part, table).path.with_suffix("")
        for part in version.parts
        for table in sorted(part.files)
        if table.startswith(f"{split}.") and table.endswith(".bin")
    ]


def tokenize_part(
    task: PartTask, directory: Path, tokenizer: tuple[Readable, ...], params: ShardParams, fast: bool
) -> Part:
    """Writes the shards of one part with the `tokenizer`'s two files. Encodes them again with `tokenizers`
    where the fast encoder gave other ids.
    """
    encoder, sha256 = _encoder(tokenizer, fast, params.longest is not None)
    writing = SplitShards(directory, task.name, encoder, params)
    try:
        writing.write(kept_batches(task.inputs[0], list(task.inputs[1:]), ["id", "text"]))
    except bpe.MismatchError as error:
        message = "%s: %s; encoding it again with `tokenizers`. Please report the document to gigatoken"
        log.warning(message, task.name, error)
        part = tokenize_part(task, directory, tokenizer, params, fast=False)
        return replace(part, counts={**part.counts, "encoder_fallbacks": 1})
    record = directory / "shards" / f"{task.name}.json"
    files, counts = writing.finish(record, {"tokenizer_sha256": sha256})
    return Part(task.name, task.fingerprint, files, {**counts, "encoder_fallbacks": 0})


# Loading takes as long as encoding 10 MB, and a warm encoder is twice as fast as a new one.
@lru_cache(maxsize=1)
def _encoder(tokenizer: tuple[Readable, ...], fast: bool, messages: bool) -> tuple[bpe.Encoder, str]:
    directory, _ = (Path(file).parent for file in tokenizer)
    found = TokenizerFiles.read(directory)
    settings = for_messages(found.tokenizer_json) if messages else found.tokenizer_json
    return bpe.Encoder(settings, found.boundaries, fast), found.sha256


class SplitShards:
    """Writes `<directory>/<split>/<name>.00000.bin` and `.idx`, and so on. Documents without text are left
    out and listed in the record.

    With `params.longest`, all documents are conversations. One of more ids is cut after an answer, or left
    out and listed; and the text that counts is that of the answers. With the fast encoder, `tokenizers`
    encodes a sample of the documents a second time. On MismatchError the unfinished shards are deleted.
    """

    def __init__(self, directory: Path, name: str, encoder: bpe.Encoder, params: ShardParams):
        if params.longest is not None and not encoder.ends.control:
            raise bpe.TokenizerError(
                "the tokenizer has no tokens for conversations: set `chat: true` in the recipe's `tokenizer`"
            )
        self.directory = directory
        self.dtype = token_dtype(encoder.max_id)
        self.empty: list[str] = []
        self.too_long: list[str] = []
        self.shortened = 0
        self.given_back = bpe.GivenBack()  # of held-out text
        self._params = params
        self._encoder = encoder
        self._series = {
            split: ShardSeries(directory / split, name, self.dtype, params.shard_tokens) for split in SPLITS
        }
        self._checked = bpe.Checked()

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Writes the documents of the batches, which have the columns `id` and `text`."""
        with self._series[TRAIN], self._series[VALIDATION]:
            # One batch is read while another is encoded and a third written.
            encode = self._encode if self._params.longest is None else self._encode_conversations
            for document_ids, kept, sizes, ids, lengths in ahead(map(encode, ahead(iter(batches)))):
                validates = held_out(document_ids, self._params.validation_fraction)
                for split, chosen in ((TRAIN, ~validates & kept), (VALIDATION, validates & kept)):
                    self._series[split].add(ids[np.repeat(chosen, lengths)], lengths[chosen], sizes[chosen])

    def _encode(self, batch: pa.RecordBatch) -> Encoded:
        document_ids, texts = batch.column("id"), batch.column("text")
        if pc.any(pc.match_substring_regex(texts, f"^{ROLE}")).as_py():
            raise PipelineError(
                "a text to pretrain on is a conversation: set `training.objective` to sft or dpo, or leave "
                "out corpora with `format: chat` or `preferences`"
            )
        sizes = pc.binary_length(texts).to_numpy()
        self.empty += document_ids.filter(pa.array(sizes == 0)).to_pylist()
        ids, lengths = self._encoder.encode(texts)
        self._check(document_ids, texts, ids, lengths)
        share = self._params.validation_fraction or 1.0  # of plain files none may be held out
        self._compare(held_out(document_ids, share), texts, ids, lengths)
        return document_ids, sizes > 0, sizes, ids, lengths

    def _encode_conversations(self, batch: pa.RecordBatch) -> Encoded:
        """Each message is encoded by itself: nothing that it says joins what stands beside it."""
        document_ids, ends = batch.column("id"), self._encoder.ends
        said = chat.messages(document_ids, batch.column("text"))
        begins = np.array([ends.control[role] for role in ROLES])[said.roles]
        ids, lengths = self._encoder.between(begins, said.contents, ends.control["end"])
        if np.isin(ids, [*ends.control.values(), ends.begin, ends.end]).sum() > 2 * len(lengths):
            raise bpe.TokenizerError("the tokenizer makes a control token of plain text: choose another one")
        self._check(document_ids.take(pa.array(said.documents)), said.contents, ids, lengths)
        answers = held_out(document_ids, self._params.validation_fraction)[said.documents] & (
            said.roles == chat.ASSISTANT
        )
        self._compare(answers, said.contents, ids, lengths)
        made = chat.joined(said, ids, lengths, ends, self._params.longest or 0)
        self.too_long += document_ids.filter(pa.array(made.lengths == 0)).to_pylist()
        self.shortened += made.shortened
        return document_ids, made.lengths > 0, made.answer_bytes, made.ids, made.lengths

    def _compare(self, chosen: np.ndarray, texts: pa.Array, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Compares the first COMPARED_BYTES of the texts that are `chosen` with what their ids give back."""
        if self.given_back.checked < COMPARED_BYTES:
            decoded = self._encoder.decode(ids[np.repeat(chosen, lengths)], lengths[chosen])
            self.given_back.add(texts.filter(pa.array(chosen)).to_pylist(), decoded)

    def _check(self, document_ids: pa.Array, texts: pa.Array, ids: np.ndarray, lengths: np.ndarray) -> None:
        if self._encoder.fast:
            chosen = self._checked.choose(document_ids, pc.binary_length(texts).to_numpy())
            self._encoder.check(document_ids, texts, chosen, ids, lengths)

    def finish(self, record: Path, facts: dict[str, Any]) -> tuple[dict[str, File], dict[str, int]]:
        """Writes the record: `facts`, and what is in each shard. Returns all files by table, and counts."""
        counts = {f"{split}_{what}": 0 for split in SPLITS for what in (*COUNTED, "shards")}
        counts["empty_documents"] = len(self.empty)
        files: dict[str, File] = {}
        shards = []
        for split, series in self._series.items():
            for number, shard in enumerate(series.shards):
                hashes = {}
                for path in (bin_path(shard.prefix), idx_path(shard.prefix)):
                    file = File.of(path, self.directory)
                    files[f"{split}.{number:05d}{path.suffix}"] = file
                    hashes[file.path] = file.sha256
                contents = {what: getattr(shard, what) for what in COUNTED}
                for what, count in (*contents.items(), ("shards", 1)):
                    counts[f"{split}_{what}"] += count
                shards.append({"files": hashes, **contents})
        content = {"dtype": self.dtype.name, **facts, "shards": shards, "empty_documents": self.empty}
        if self.given_back.lost:
            content["not_given_back"] = self.given_back.share
            counts |= {LOST: self.given_back.lost, COMPARED: self.given_back.checked}
        if self._params.longest is not None:
            content["too_long"] = self.too_long
            counts |= {"too_long": len(self.too_long), "shortened": self.shortened}
        write_atomically(record, json.dumps(content, indent=1))
        return files | {"shards": File.of(record, self.directory)}, counts


@dataclass
class WrittenShard:
    """A shard that was written: its path without suffix, and its size."""

    prefix: Path
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0


class ShardSeries:
    """Writes `<directory>/<name>.00000.bin` and so on, and nothing without documents. A document never spans
    shards; one of more than `max_tokens` gets a shard of its own. An error deletes the unfinished shard.
    """

    def __init__(self, directory: Path, name: str, dtype: np.dtype, max_tokens: int):
        self.shards: list[WrittenShard] = []
        self._prefix = directory / name
        self._dtype = dtype
        self._max_tokens = max_tokens
        self._writer: ShardWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._writer is not None:
            self._writer.__exit__(*error)
            self._writer = None

    def add(self, ids: np.ndarray, lengths: np.ndarray, text_bytes: np.ndarray) -> None:
        """Adds documents, end to end in `ids`. `lengths`, `text_bytes`: ids and bytes of text of each."""
        stops = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        first = 0
        while first < len(lengths):
            room = self._max_tokens - (self.shards[-1].tokens if self._writer else 0)
            fitting = int(np.searchsorted(stops, stops[first] + room, side="right")) - 1
            if fitting <= first and self._writer:
                self.__exit__(None, None, None)
                continue
            until = max(fitting, first + 1)
            writer, shard = self._open()
            writer.add_documents(ids[stops[first] : stops[until]], lengths[first:until])
            shard.documents += until - first
            shard.tokens += int(stops[until] - stops[first])
            shard.text_bytes += int(text_bytes[first:until].sum())
            first = until

    def _open(self) -> tuple[ShardWriter, WrittenShard]:
        if self._writer is None:
            shard = WrittenShard(self._prefix.with_name(f"{self._prefix.name}.{len(self.shards):05d}"))
            self._writer = ShardWriter(shard.prefix, self._dtype)
            self.shards.append(shard)
        return self._writer, self.shards[-1]
