"""Reads a source into corpora/<name>/raw: documents in parts, and rejects with file, row and reason."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from pipeline.sources import SourceConfig, open_source
from pipeline.sources.errors import OfflineError
from pipeline.sources.source import Source, Unit
from pipeline.sources.stored import StoredSource
from pipeline.steps.corpus.duplicate_ids import set_aside_repeated_ids
from pipeline.steps.corpus.rejects import REJECTS_SCHEMA, RejectsTable
from pipeline.store import keys
from pipeline.store.engine import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import combined
from pipeline.store.manifest import Part, Version, total_counts
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter
from pipeline.store.parts import add, text_bytes
from pipeline.store.versions import Draft, Store, Work

log = logging.getLogger(__name__)
VERSION = "raw-2"
PIECES_PER_PART = 8  # large batches are cut so that a part exceeds its size by at most an eighth


class CorpusError(PipelineError):
    """A corpus without a valid document; the message says what to change."""


@dataclass(frozen=True)
class Bucket:
    """Units that are read together: one large unit alone, or small ones that share a part."""

    name: str
    units: tuple[Unit, ...]

    @property
    def bytes(self) -> int:
        return sum(unit.bytes for unit in self.units)


def collect(store: Store, engine: Engine, corpus: str, config: SourceConfig, part_bytes: int) -> Version:
    """The raw version of a corpus: tables `documents` and `rejects`. Only units whose fingerprint changed are
    read again.

    Offline, the documents that were read last are used again. Raises SourceError when the source cannot be
    listed, CorpusError when it holds no document.
    """
    source = open_source(corpus, config, store.hashes.sha256)
    try:
        units = source.units()
    except OfflineError as error:
        return _last_read(store, corpus, config, part_bytes, error)
    work = _work(source, corpus, config, part_bytes, _inputs(units))
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        if isinstance(source, StoredSource):
            return draft.publish(source.copy_to(draft.path))
        tasks = [_Reading(draft, corpus, config, bucket, part_bytes) for bucket in buckets(units, part_bytes)]
        finished = {task.bucket.name: task.finished() for task in tasks}
        parts = [part for found in finished.values() for part in found]
        todo = [task for task in tasks if not finished[task.bucket.name]]
        for read in engine.map(
            _Reading.read, todo, input_bytes=sum(task.bucket.bytes for task in todo), what=work.key
        ):
            parts.extend(read)
        parts = set_aside_repeated_ids(draft, parts)
        counts = total_counts(parts)
        if not counts.get("documents"):
            reasons = [
                f"{reason} {count:,}"
                for name, count in counts.items()
                if (reason := name.removeprefix("set_aside/")) != name
            ]
            raise CorpusError(
                f"corpus {corpus!r} is empty: its source gave no valid document "
                f"({', '.join(reasons) or 'and no invalid one'}). Check its `source`"
            )
        if "lost_bytes" in counts:
            counts["input_bytes"] = sum(unit.bytes for unit in units)
        return draft.publish(parts, counts)


@dataclass(frozen=True)
class _Reading:
    """Reads one bucket into parts `<bucket>.0000`, ...; the part `<bucket>.rejects` closes it."""

    draft: Draft
    corpus: str
    config: SourceConfig
    bucket: Bucket
    part_bytes: int

    def finished(self) -> list[Part]:
        """All parts of the bucket if every one of them is finished, else none."""
        closing = self.draft.finished(self._closing, self._fingerprint("rejects"))
        if closing is None:
            return []
        parts = [
            self.draft.finished(self._name(index), self._fingerprint(str(index)))
            for index in range(closing.counts["parts"])
        ]
        whole = [part for part in parts if part is not None]
        return [*whole, closing] if len(whole) == len(parts) else []

    def read(self) -> list[Part]:
        """Reads the units in order. Parts that an interrupted attempt finished are skipped, not rewritten."""
        source = open_source(self.corpus, self.config)
        with PartWriter(self.draft.path, self._closing, {"rejects": REJECTS_SCHEMA}) as writer:
            rejects = RejectsTable(partial(writer.write, "rejects"))
            stream = (batch for unit in self.bucket.units for batch in source.read(unit, rejects))
            parts = [
                self._write(index, group)
                for index, group in groupby(_numbered(stream, self.part_bytes), key=itemgetter(0))
            ]
            rejects.finish()
        counts = {"parts": len(parts), **dict(sorted(rejects.counts.items()))}
        closing = Part(self._closing, self._fingerprint("rejects"), writer.files, counts)
        self.draft.keep(closing)
        return [*parts, closing]

    def _write(self, index: int, group: Iterator[tuple[int, pa.RecordBatch]]) -> Part:
        name, made_from = self._name(index), self._fingerprint(str(index))
        part = self.draft.finished(name, made_from)
        if part is not None:
            for _ in group:
                continue
            return part
        counts = {"documents": 0, "text_bytes": 0}
        with PartWriter(self.draft.path, name, {"documents": DOCUMENT_SCHEMA}) as writer:
            for _, batch in group:
                writer.write("documents", batch)
                add(counts, {"documents": batch.num_rows, "text_bytes": text_bytes(batch)})
        part = Part(name, made_from, writer.files, counts)
        self.draft.keep(part)
        return part

    @property
    def _closing(self) -> str:
        return f"{self.bucket.name}.rejects"

    def _name(self, index: int) -> str:
        return f"{self.bucket.name}.{index:04d}"

    def _fingerprint(self, which: str) -> str:
        return self.draft.work.part_fingerprint(
            [which, *(f"{unit.name} {unit.fingerprint}" for unit in self.bucket.units)]
        )


def _numbered(stream: Iterator[pa.RecordBatch], part_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each batch with the number of its part. A part is full once it holds `part_bytes` of text."""
    index = filled = 0
    for batch in stream:
        rows = max(1, batch.num_rows * part_bytes // (PIECES_PER_PART * max(text_bytes(batch), 1)))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            if filled >= part_bytes:
                index, filled = index + 1, 0
            filled += text_bytes(piece)
            yield index, piece


def buckets(units: Sequence[Unit], part_bytes: int) -> list[Bucket]:
    """Groups units: a large unit has its own bucket, small ones are spread by the hash of their name.


    Adding a small unit changes one bucket. The number of shared buckets is a power of two, so it changes only
    when the corpus doubles.
    """
    small = [unit for unit in units if unit.bytes < part_bytes]
    spread = 1 << max(0, (sum(unit.bytes for unit in small) // part_bytes).bit_length() - 1)
    shared: dict[str, list[Unit]] = {}
    for unit in sorted(small, key=lambda unit: unit.name):
        shared.setdefault(f"{int(_name_hash(unit), 16) % spread:05d}-of-{spread:05d}", []).append(unit)
    alone = [Bucket(_name_hash(unit), (unit,)) for unit in units if unit.bytes >= part_bytes]
    return [*(Bucket(name, tuple(members)) for name, members in sorted(shared.items())), *alone]


def _name_hash(unit: Unit) -> str:
    return hashlib.blake2b(unit.name.encode(), digest_size=8).hexdigest()


def observe(store: Store, corpus: str, config: SourceConfig) -> str:
    """A hash of what the source holds now: the input `source` of the version that `collect` would make.

    Raises SourceError.
    """
    return _inputs(open_source(corpus, config, store.hashes.sha256).units())["source"]


def revision(version: Version) -> str | None:
    """The commit that a raw version was read at, if its source has commits."""
    found: str | None = version.manifest["inputs"].get("revision")
    return found


def _inputs(units: Sequence[Unit]) -> dict[str, str]:
    """The hash of all units, and their commit if the source has one."""
    source = combined(f"{unit.name} {unit.fingerprint}" for unit in sorted(units, key=lambda unit: unit.name))
    commit = next((unit.revision for unit in units if unit.revision), None)
    return {"source": source, "revision": commit} if commit else {"source": source}


def last_read(store: Store, corpus: str, config: SourceConfig, part_bytes: int) -> Version | Work:
    """What was last read from the source with these settings, else the work without its inputs."""
    work = _work(open_source(corpus, config), corpus, config, part_bytes, {})
    version = store.latest(work.key, work.code_version, work.params)
    return version if version and not store.damage(version) else work


def _last_read(
    store: Store, corpus: str, config: SourceConfig, part_bytes: int, error: OfflineError
) -> Version:
    """As `last_read`, for a run. Raises `error` when nothing was read with these settings."""
    version = last_read(store, corpus, config, part_bytes)
    if not isinstance(version, Version):
        raise error
    log.warning(
        "%s: using the version read before, because the source cannot be checked: %s", version.key, error
    )
    store.use(version)
    return replace(version, reused=True)


def _work(source: Source, corpus: str, config: SourceConfig, part_bytes: int, inputs: dict[str, str]) -> Work:
    params = {"source": config, "part_bytes": part_bytes}
    return Work(keys.raw(corpus), f"{VERSION} {source.version}", params, inputs)
