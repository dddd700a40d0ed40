"""What a folder holds: corpora, by how they are read and their kind of text, and what cannot be read."""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from glob import escape
from pathlib import Path, PurePosixPath

from pipeline.sources.files import FORMATS, PROGRAMS, PROSE
from pipeline.sources.formats.compression import format_of
from pipeline.sources.listing import Files, listed
from pipeline.sources.source import SourceError
from pipeline.sources.source_file import LocalFile, may_list, size_of
from pipeline.stages.edits import EditRule
from pipeline.start.folder import ids
from pipeline.start.folder.kind import Kind, edits_of, judged, kind_of
from pipeline.start.folder.patterns import patterns, suffix_of
from pipeline.start.folder.sample import FileSample, Shape, sampled
from pipeline.start.folder.unread import Unread, no_content, no_format, reasons_of
from pipeline.store.errors import PipelineError
from trainer.system.wording import counted

MOST_SECONDS = 10.0
# How many are sampled of one sub-folder and format. Fewer, on a busy machine, may be those that say nothing.
FEWEST_FILES, MOST_FILES = 8, 48
PACKAGES = {"node_modules", "bower_components", "site-packages", "dist-packages"}  # folders of others' code
LEAST_APART = 0.05  # share of the bytes from which programs and texts in one folder are told apart
FIRST_TEXTS = 8  # of a file, in which `edits` are looked for
MOST_TOPS = 12  # sub-folders that are told apart; more of them are taken together


class NothingReadableError(PipelineError):
    """A folder from which no model can be made."""


@dataclass(frozen=True)
class FoundCorpus:
    """One corpus of a folder.

    `paths` are globs that begin with the folder's own name. `bytes` are those on disk, `text_bytes` those of
    text, estimated from the sample. `longest` is the bytes of the longest file, and only one document in
    fifty has more than `long_document` bytes of text. `edits` cut out what nobody wrote as text. `blank` is
    the share of the rows that have no text. `repeats_ids` says whether two rows have one id.
    """

    name: str
    paths: tuple[str, ...]
    shape: Shape
    kind: Kind
    files: int
    bytes: int
    text_bytes: int
    longest: int
    documents: int
    long_document: int
    edits: tuple[EditRule, ...]
    blank: float
    repeats_ids: bool

    @property
    def is_text(self) -> bool:
        return self.shape.format == "text"


@dataclass(frozen=True)
class Folder:
    """What a folder holds. `unread` has the files that cannot be read, each with the reason. Of all `files`,
    `sampled` were looked at.
    """

    path: Path
    corpora: tuple[FoundCorpus, ...]
    unread: Unread
    files: int
    sampled: int
    seconds: float


@dataclass
class _Group:
    """The files of one sub-folder and format, and the samples of some of them."""

    files: dict[str, LocalFile] = field(default_factory=dict)
    samples: dict[str, FileSample] = field(default_factory=dict)

    def shapes(self) -> Iterator[tuple[str, Shape]]:
        """Each file with its shape. A file that was not sampled has that of the sampled file before it. It is
        a conversation in plain text only if all that were sampled are.
        """
        found = [sample.shape for sample in self.samples.values() if sample.shape]
        others = [shape for shape in found if not shape.is_transcript]
        last = next(iter(others or found), None)
        for name in self.files:
            if name in self.samples:
                if (shape := self.samples[name].shape) is None:
                    continue
                if others and shape.is_transcript:
                    yield name, shape
                    continue
                last = shape
            if last is not None:
                yield name, last


def look(folder: Path, most_seconds: float = MOST_SECONDS) -> Iterator[Folder]:
    """Samples the files of a folder, for at most about `most_seconds`. Yields what the folder holds twice.
    First the corpora are told apart by their kinds of text, which takes seconds on any machine. Then they are
    told apart by the quality profiles that suit them, for which kernels are compiled. Raises
    NothingReadableError.
    """
    started = time.monotonic()
    folder = folder.absolute()
    entries = _entries(folder)
    files = {
        name: file for name, file in entries.items() if isinstance(file, LocalFile) and not file.directory
    }
    # `listed` keeps the folders that may not be listed, and no others.
    unread: Unread = {
        name: ("the folder may not be listed", 0) for name, file in entries.items() if file.directory
    }
    found = _Files(folder, files, unread)
    found.sample(most_seconds * 0.6)
    corpora = found.corpora(found.kind)
    if not corpora:
        size = sum(size for _, size in unread.values())
        raise NothingReadableError(
            f"{folder}: no model can be made, since nothing in its {counted(len(files), 'files')} "
            f"({size:,} bytes) can be read: {'; '.join(reasons_of(unread)) or 'it has no files'}: "
            "add text, in the formats that docs/start.md names"
        )
    first = Folder(folder, corpora, unread, len(files), len(found.samples), time.monotonic() - started)
    yield first
    yield replace(first, corpora=found.corpora(lambda names: judged(found.kind(names))))


def _entries(folder: Path) -> Files:
    """The files below a folder, and the folders that may not be listed. Raises NothingReadableError."""
    if not folder.is_dir():
        raise NothingReadableError(f"{folder}: is not a folder: name one that holds text")
    try:
        return listed("folder", [f"{escape(str(folder))}/**/*"], lambda _: False)
    except SourceError as error:
        if not may_list(folder):
            raise NothingReadableError(f"{folder}: may not be listed: change who may read it") from error
        raise NothingReadableError(
            f"{folder}: no model can be made, since it holds no file, or only some that are hidden: add text"
        ) from error


class _Files:
    """The files of a folder, by sub-folder and format, and the `samples` of some of them. What cannot be read
    is added to `unread`.
    """

    def __init__(self, folder: Path, files: Mapping[str, LocalFile], unread: Unread) -> None:
        self.folder, self.files, self.unread = folder, files, unread
        self.samples: dict[str, FileSample] = {}
        self._of_others = {name for name in files if not PACKAGES.isdisjoint(PurePosixPath(name).parts[:-1])}
        tops = {_top(name) for name in files if name not in self._of_others}
        self._are_tops_apart = len(tops) <= MOST_TOPS
        self._groups = self._grouped()
        self.kind = cache(self._kind)
        self._repeats_ids = cache(
            lambda names, shape, seconds: ids.repeat({name: files[name] for name in names}, shape, seconds)
        )

    def _grouped(self) -> dict[tuple[str, str], _Group]:
        """The files that may be read by their format and, if these are told apart, by sub-folder."""
        refused: dict[str, str] = {}
        groups: dict[tuple[str, str], _Group] = defaultdict(_Group)
        for name, file in self.files.items():
            if name in self._of_others:
                why = "packages that others wrote: name their folder alone to learn them"
                self.unread[name] = (why, size_of(file))
            elif format_of(name)[0] not in FORMATS:
                alike = "".join(format_of(name)) or name
                if alike not in refused:
                    refused[alike] = no_format(name, file)
                self.unread[name] = (refused[alike], size_of(file))
            elif not size_of(file):
                self.unread[name] = (no_content(file), 0)
            else:
                groups[self._place(name), suffix_of(name)].files[name] = file
        return groups

    def _place(self, name: str) -> str:
        """The sub-folder of a file, if these are told apart."""
        return _top(name) if self._are_tops_apart else ""

    def sample(self, seconds: float) -> None:
        """Samples files of all groups in turn, evenly over each, for so many seconds, but at least a few of
        each: of tables, which often differ in their columns, as many as there are.
        """
        turns, fewest = {}, {}
        for key, group in self._groups.items():
            names = list(group.files)
            every = max(1, len(names) / MOST_FILES)
            evenly = [names[int(place * every)] for place in range(min(len(names), MOST_FILES))]
            # Those that are taken at any rate are spread over all.
            first = evenly[:: max(1, len(evenly) // FEWEST_FILES)][:FEWEST_FILES]
            turns[key] = [*first, *(name for name in evenly if name not in first)]
            fewest[key] = FEWEST_FILES if format_of(names[0])[0] in PROSE else MOST_FILES
        until = time.monotonic() + seconds
        for turn in range(MOST_FILES):
            for key, names in turns.items():
                if turn < len(names) and (turn < fewest[key] or time.monotonic() < until):
                    name = names[turn]
                    self._groups[key].samples[name] = sampled(name, self.files[name])
        for group in self._groups.values():
            group.samples = {name: group.samples[name] for name in group.files if name in group.samples}
            self.samples |= group.samples
        for name, sample in self.samples.items():
            if sample.shape is None:
                self.unread[name] = (sample.problem, size_of(self.files[name]))

    def corpora(self, kind: Callable[[tuple[str, ...]], Kind]) -> tuple[FoundCorpus, ...]:
        """Files of one shape and one quality profile are a corpus."""
        alike: dict[tuple[str, Shape], list[str]] = defaultdict(list)
        for group in self._groups.values():
            for name, shape in group.shapes():
                alike[self._place(name), shape].append(name)
        merged: dict[tuple[Shape, str], list[str]] = defaultdict(list)
        kinds: dict[tuple[Shape, str], list[Kind]] = defaultdict(list)
        for (_, shape), together in alike.items():
            for names in _programs_apart(together, self.files):
                chosen = kind(tuple(names))
                merged[shape, chosen.profile].extend(names)
                kinds[shape, chosen.profile].append(chosen)
        seconds = ids.MOST_SECONDS / max(1, len(merged))
        taken: set[str] = set()
        found = []
        for (shape, profile), names in sorted(merged.items(), key=lambda item: min(item[1])):
            own = kinds[shape, profile]
            chosen = own[0] if len(own) == 1 else kind(tuple(names))
            name = _name({_top(name) for name in names}, shape, profile, self.folder, taken)
            found.append(self._corpus(name, names, shape, chosen, seconds))
        return tuple(found)

    def _corpus(
        self, name: str, names: Sequence[str], shape: Shape, kind: Kind, seconds: float
    ) -> FoundCorpus:
        """The corpus of these files. Ids that repeat are looked for during so many seconds."""
        readable = [one for group in self._groups.values() for one in group.files]
        read = list(self._read(names).values())
        sizes = [size_of(self.files[name]) for name in names]
        text_bytes = round(sum(sizes) * sum(sample.text_share for sample in read) / max(len(read), 1))
        lengths = sorted(len(text.encode("utf-8", "replace")) for sample in read for text in sample.texts)
        mean = max(1.0, sum(lengths) / max(len(lengths), 1))
        first = [text for sample in read for text in sample.texts[:FIRST_TEXTS]]
        have_ids = any(sample.has_ids for sample in read)
        return FoundCorpus(
            name=name,
            paths=tuple(patterns(self.folder, names, [*readable, *self._of_others])),
            shape=shape,
            kind=kind,
            files=len(sizes),
            bytes=sum(sizes),
            text_bytes=text_bytes,
            longest=max(sizes),
            long_document=lengths[-1 - len(lengths) // 50],
            edits=edits_of(first) if shape.format == "text" else (),
            documents=len(sizes) if shape.is_file else max(len(lengths), round(text_bytes / mean)),
            blank=max((sample.blank for sample in read), default=0.0),
            repeats_ids=have_ids and self._repeats_ids(tuple(names), shape, seconds),
        )

    def _read(self, names: Sequence[str]) -> dict[str, FileSample]:
        """The samples of those of the files that can be read."""
        return {name: one for name in names if (one := self.samples.get(name)) and one.shape}

    def _kind(self, names: Sequence[str]) -> Kind:
        here = self._read(names)
        texts = [text for sample in here.values() for text in sample.texts]
        columns = frozenset[str]().union(*(sample.columns for sample in here.values()))
        plain = [
            round(size_of(self.files[name]) * sample.text_share)
            for name, sample in here.items()
            if sample.shape and sample.shape.is_file
        ]
        return kind_of(texts, [format_of(name)[0] for name in here], plain, columns)


def _top(name: str) -> str:
    """The sub-folder of a file, empty for one that is in none."""
    parts = PurePosixPath(name).parts
    return parts[0] if len(parts) > 1 else ""


def _programs_apart(names: Sequence[str], files: Mapping[str, LocalFile]) -> Iterator[Sequence[str]]:
    """The programs and the other files, or all together where one of both has a few bytes only."""
    sides: tuple[list[str], list[str]] = ([], [])
    sizes = [0, 0]
    for name in names:
        is_program = format_of(name)[0] in PROGRAMS
        sides[is_program].append(name)
        sizes[is_program] += size_of(files[name])
    yield from sides if all(sides) and min(sizes) >= LEAST_APART * sum(sizes) else [names]


def _name(tops: set[str], shape: Shape, profile: str, folder: Path, taken: set[str]) -> str:
    """A name for a corpus: that of its only sub-folder, else that of the folder. If the name is taken, the
    format follows it, or for plain text the profile, and then a number.
    """
    written = next(iter(tops)) if len(tops) == 1 and tops != {""} else folder.name
    name = re.sub(r"[^a-z0-9]+", "_", written.lower()).strip("_")
    name = name if name[:1].isalpha() else f"text_{name}".rstrip("_")
    if name in taken:
        name = f"{name}_{profile if shape.format == 'text' else shape.format}"
    number = 2
    unique = name
    while unique in taken:
        unique = f"{name}_{number}"
        number += 1
    taken.add(unique)
    return unique
