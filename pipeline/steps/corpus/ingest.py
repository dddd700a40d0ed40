"""Reads a source into corpora/<name>/raw: documents in parts, and rejects with file, row and reason."""

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.recipe.recipe import Recipe
from pipeline.recipe.sections import RawParams
from pipeline.sources import SourceConfig, open_source
from pipeline.sources.formats.unlearnable import UNREAD
from pipeline.sources.source import ChangedError, OfflineError, Source, Unit
from pipeline.sources.stored import StoredSource
from pipeline.sources.user_code import PythonConfig
from pipeline.steps import compile_ahead
from pipeline.steps.corpus.cutting import numbered, row_groups
from pipeline.steps.corpus.duplicate_ids import set_aside_repeated_ids
from pipeline.steps.corpus.raw_part import write_part
from pipeline.steps.corpus.rejects import REJECTS_SCHEMA, RejectsTable
from pipeline.steps.stage import CorpusStage, Page
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import combined
from pipeline.store.forgotten import Forgotten, forgotten, part_names
from pipeline.store.keys import FORGOTTEN, Key
from pipeline.store.manifest import Part, Version, breakdown, total_counts
from pipeline.store.parquet import PartWriter
from pipeline.store.parts import Counts, add
from pipeline.store.store import Store
from pipeline.store.work import Work

log = logging.getLogger(__name__)
VERSION = "raw-6"
# Set for a job that continues another one: what that has read is used, whatever became of the sources.
CONTINUES_VARIABLE = "GROUNDWORK_CONTINUES"
ID_DIGITS = 12  # of a document's id, in the name of the part that begins with it


@dataclass(frozen=True)
class UnitGroup:
    """Units that are read together: one large unit alone, or small ones that share a part."""

    name: str
    units: tuple[Unit, ...]

    @property
    def bytes(self) -> int:
        return sum(unit.bytes for unit in self.units)

    @property
    def closing(self) -> str:
        """The name of the part that is written last."""
        return f"{self.name}.rejects"


@dataclass(frozen=True)
class Raw(CorpusStage):
    """Tables `documents` and `rejects`. Only units whose fingerprint changed are read again."""

    source: SourceConfig
    part_bytes: int = RawParams().part_bytes

    name = "raw"
    version = VERSION
    page = Page(
        "The documents of `{corpus}` as its source delivers them. Rows that cannot be read are set aside "
        "with their reason.",
        kinds=("{source}", "parquet"),
        numbers={"set aside": "set_aside"},
        breakdowns={"set aside by reason": ("set_aside", "reason")},
    )

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        return [cls(corpus, recipe.corpus(corpus).source, recipe.raw.part_bytes)]

    @property
    def names(self) -> dict[str, str]:
        return {"corpus": self.corpus, "source": self.source.kind}

    @property
    def inputs(self) -> Sequence[Key]:
        return [keys.source(self.corpus)]

    def work(self, store: Store) -> Version | Work:
        """What was last read from the source with these settings, without what was forgotten since; else the
        work without its inputs.
        """
        work = self._work(open_source(self.corpus, self.source), {})
        gone = forgotten(store.files, self.corpus).inputs.get(FORGOTTEN)
        for version in store.used_first(work.key):
            obeys = version.manifest["inputs"].get(FORGOTTEN) == gone
            if obeys and not list(work.differences(version.manifest)):
                return work if store.damage(version) else version
        return work

    def _work(self, source: Source, inputs: dict[str, str]) -> Work:
        params = {"source": self.source, "part_bytes": self.part_bytes}
        return Work(self.key, f"{VERSION} {source.version}", params, inputs)

    def observe(self, store: Store) -> str:
        """A hash of what the source holds now, the input `source` of a new version. Raises SourceError."""
        source = open_source(self.corpus, self.source, store.hashes.sha256)
        return _inputs(self._units(store, source))["source"]

    def _units(self, store: Store, source: Source) -> Sequence[Unit]:
        if CONTINUES_VARIABLE in os.environ and isinstance(self.work(store), Version):
            raise OfflineError("it was read by the job that this one continues")
        return source.units()

    def make(self, store: Store, engine: Engine) -> Version:
        """Offline it reuses what was read last. A source that changes meanwhile is listed again once. Raises
        SourceError, and PipelineError without a document.
        """
        if store.last_used(keys.scrubbed(self.corpus)) is None:
            compile_ahead.start()
        try:
            return self._read(store, engine)
        except ChangedError as error:
            log.warning("%s: its source is listed again: %s", self.key, error)
            return self._read(store, engine)

    def _read(self, store: Store, engine: Engine) -> Version:
        source = open_source(self.corpus, self.source, store.hashes.sha256)
        try:
            units = self._units(store, source)
        except OfflineError as error:
            last = self.work(store)
            if not isinstance(last, Version):
                raise
            log.warning("%s: using the version read before; the source is not looked at: %s", last.key, error)
            store.use(last)
            return replace(last, reused=True)
        gone = forgotten(store.files, self.corpus)
        with store.making(self._work(source, _inputs(units) | gone.inputs)) as draft:
            if isinstance(draft, Version):
                return draft
            if isinstance(source, StoredSource):
                return draft.publish(_copied(source, draft, self.corpus, gone))
            parts = self._parts(draft, engine, units, gone)
            counts = total_counts(parts)
            self._check_not_empty(draft, parts, counts)
            if unread := breakdown(counts, UNREAD):
                named = ", ".join(f"{key!r} in {count:,}" for key, count in unread.items())
                message = "%s: keys of messages are not read; conversations that have each: %s"
                log.warning(message, self.key, named)
            if "lost_bytes" in counts:
                counts["input_bytes"] = sum(unit.bytes for unit in units)
            return draft.publish(parts, counts)

    def _parts(self, draft: Draft, engine: Engine, units: Sequence[Unit], forgotten: Forgotten) -> list[Part]:
        """Reads the groups of units of which parts are missing."""
        if forgotten.ids:
            draft.leave_out(partial(part_names, among=forgotten.among))
        reader = _Reader(draft, self.corpus, self.source, self.part_bytes, forgotten)
        groups = unit_groups(units, self.part_bytes)
        read = {group.name: reader.finished(group) for group in groups}
        # The largest first, so that at the end no worker is alone with it.
        todo = sorted((one for one in groups if not read[one.name]), key=lambda one: -one.bytes)
        input_bytes = sum(group.bytes for group in todo)
        # What the groups share is in the reader, which travels to a cluster once.
        own: list[str] = [self.source.object] if isinstance(self.source, PythonConfig) else []
        results = engine.map(reader.read, todo, input_bytes=input_bytes, what=self.key, own=own)
        read |= {group.name: parts for group, parts in zip(todo, results, strict=True)}
        return set_aside_repeated_ids(draft, [part for found in read.values() for part in found])

    def _check_not_empty(self, draft: Draft, parts: Sequence[Part], counts: Counts) -> None:
        if counts.get("documents"):
            return
        reasons = [f"{reason} {count:,}" for reason, count in breakdown(counts, "set_aside").items()]
        emptied = f"set_aside/{FORGOTTEN}" in counts
        remedy = "Take it out of the recipe" if emptied else "Check its `source`"
        first = first_reject(draft, parts)
        raise PipelineError(
            f"corpus {self.corpus!r} is empty: its source gave no valid document "
            f"({', '.join(reasons) or 'and no invalid one'}). {first and f'First, {first}. '}{remedy}"
        )


@dataclass(frozen=True)
class _Reader:
    """Reads each group into parts of documents: `<group>.0000`, then `<group>.<id of its first document>`.
    No name depends on the parts before.

    The closing part `<group>.rejects` is written last. It holds the rejects of all units of the group, and
    its count `parts` says into how many parts of documents the group was cut.
    """

    draft: Draft
    corpus: str
    config: SourceConfig
    part_bytes: int
    forgotten: Forgotten

    def finished(self, group: UnitGroup) -> list[Part]:
        """All parts of the group if every one of them is finished, else none.

        A request to forget documents changes the fingerprints of all parts, but only groups with those
        documents are read again: the draft leaves out the parts that name them. All other groups may have
        been read in an earlier state of what is forgotten.
        """
        by_state = (self._finished_in(state, group) for state in self.forgotten.states)
        return next((parts for parts in by_state if parts), [])

    def _finished_in(self, state: str, group: UnitGroup) -> list[Part]:
        """As `finished`, but only of parts that were read while `state` named what is forgotten."""
        closing = self.draft.finished(group.closing, self._fingerprint(group, "rejects", state))
        if closing is None:
            return []
        fingerprints = [self._fingerprint(group, index, state) for index in range(closing.counts["parts"])]
        cut = map(self.draft.finished_under_any_name, fingerprints)
        documents = [part for part in cut if part is not None]
        return [*documents, closing] if len(documents) == len(fingerprints) else []

    def read(self, group: UnitGroup) -> list[Part]:
        """Reads the units in order. Parts that an interrupted attempt finished are skipped, not rewritten."""
        parts: dict[str, Part] = {}
        try:
            return self._read(group, parts)
        except ChangedError:  # a part may hold what the fingerprint of its unit does not say
            for part in parts.values():
                self.draft.forget(part)
            raise

    def _read(self, group: UnitGroup, parts: dict[str, Part]) -> list[Part]:
        """Reads the units, and adds the parts of documents to `parts`, by name."""
        source = open_source(self.corpus, self.config)
        with PartWriter(self.draft.path, group.closing, {"rejects": REJECTS_SCHEMA}) as writer:
            rejects = RejectsTable(partial(writer.write, "rejects"))
            read = (batch for unit in group.units for batch in source.read(unit, rejects))
            stream = self._without_forgotten(read, rejects.counts) if self.forgotten.ids else read
            for index, cut in groupby(numbered(stream, self.part_bytes), key=itemgetter(0)):
                documents = row_groups(map(itemgetter(1), cut), self.part_bytes)
                first = next(documents)
                name = f"{group.name}.{first.column('id')[0].as_py()[:ID_DIGITS] if index else '0000'}"
                name = f"{name}-{index}" if name in parts else name  # two files may repeat an id
                fingerprint = self._fingerprint(group, index, self.forgotten.state)
                parts[name] = self._part_of(name, fingerprint, chain([first], documents))
            rejects.finish()
        counts = {"parts": len(parts), **dict(sorted(rejects.counts.items()))}
        fingerprint = self._fingerprint(group, "rejects", self.forgotten.state)
        closing = Part(group.closing, fingerprint, writer.files, counts)
        self.draft.put(closing)
        return [*parts.values(), closing]

    def _without_forgotten(self, read: Iterable[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        """The documents that are not forgotten. The others are left out before anything is cut, so that the
        parts are those of a source that never had them.
        """
        for batch in read:
            gone = self.forgotten.among(batch.column("id"))
            if count := int(gone.sum()):
                add(counts, {"set_aside": count, f"set_aside/{FORGOTTEN}": count})
            yield batch.filter(pa.array(~gone))

    def _part_of(self, name: str, fingerprint: str, documents: Iterable[pa.RecordBatch]) -> Part:
        """The part of these documents, written if it is not there yet. They are consumed in any case."""
        part = self.draft.finished(name, fingerprint)
        if part is not None:
            for _ in documents:
                continue
            return part
        return write_part(self.draft, name, fingerprint, documents)

    def _fingerprint(self, group: UnitGroup, which: str | int, state: str) -> str:
        """The fingerprint of the closing part, "rejects", or of the part of documents with that number."""
        read = [f"{unit.name} {unit.fingerprint}" for unit in group.units]
        return self.draft.work.part_fingerprint([str(which), *read, *([state] if state else [])])


def first_reject(made: Draft | Version, parts: Iterable[Part]) -> str:
    """What was wrong with the first input that was set aside, and where; empty if none was."""
    tables = (made.file(part, "rejects") for part in parts if "rejects" in part.files)
    rows = (row for table in tables for row in pq.read_table(os.fspath(table)).slice(0, 1).to_pylist())
    row = next(rows, None)
    if row is None:
        return ""
    place = row["file"] if row["row"] is None else f"{row['file']}, row {row['row']}"
    return f"{place}: {row['detail']}"


def _copied(source: StoredSource, draft: Draft, corpus: str, forgotten: Forgotten) -> list[Part]:
    """The parts of a stored version. Raises PipelineError if it holds a document that was forgotten since."""
    read = (batch for unit in source.units() for batch in source.read(unit, RejectsTable(lambda _: None)))
    if forgotten.ids and any(forgotten.among(batch.column("id")).any() for batch in read):
        raise PipelineError(
            f"corpus {corpus!r}: {source.config.path} holds documents that were removed from this store "
            "(`forget`), so what was made of them cannot be made again"
        )
    return source.copy_to(draft.path)


def unit_groups(units: Sequence[Unit], part_bytes: int) -> list[UnitGroup]:
    """Groups units: a large unit has its own group, small ones are spread by the hash of their name. The
    groups are in the order of their names.

    A group is what one worker reads. A shared group has between half a part and a whole one on average, so
    that there is work for many workers. Adding a small unit changes one group. The number of shared groups
    is a power of two, so it changes only when the corpus doubles.
    """
    large = part_bytes // 4
    small = [unit for unit in units if unit.bytes < large]
    halves = 2 * sum(unit.bytes for unit in small) // part_bytes
    spread = 1 << max(0, halves.bit_length() - 1)
    shared: dict[str, list[Unit]] = {}
    for unit in sorted(small, key=lambda unit: unit.name):
        shared.setdefault(f"{int(_name_hash(unit), 16) % spread:05d}-of-{spread:05d}", []).append(unit)
    alone = [UnitGroup(_name_hash(unit), (unit,)) for unit in units if unit.bytes >= large]
    together = [UnitGroup(name, tuple(members)) for name, members in shared.items()]
    return sorted([*together, *alone], key=lambda group: group.name)


def _name_hash(unit: Unit) -> str:
    return hashlib.blake2b(unit.name.encode(), digest_size=8).hexdigest()


def _inputs(units: Sequence[Unit]) -> dict[str, str]:
    """The hash of all units, and their commit if the source has one."""
    source = combined(f"{unit.name} {unit.fingerprint}" for unit in sorted(units, key=lambda unit: unit.name))
    commit = next((unit.revision for unit in units if unit.revision), None)
    return {"source": source, "revision": commit} if commit else {"source": source}
