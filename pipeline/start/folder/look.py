"""What a folder holds: corpora, by how they are read and their kind of text, and what cannot be read."""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
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
from pipeline.start.folder.sample import FileSample, Shape, sampled
from pipeline.start.folder.unread import Unread, no_content, no_format, reasons_of
from pipeline.store.errors import PipelineError
from trainer.system.wording import counted

MOST_SECONDS = 10.0
_NOT_UTF8 = "%[0-9A-F]{2}"
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
    edits: tuple[EditRule, ...] = ()
    blank: float = 0.0
    repeats_ids: bool = False

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
    of_others = {name for name in files if not PACKAGES.isdisjoint(PurePosixPath(name).parts[:-1])}
    apart = len({_top(name) for name in files if name not in of_others}) <= MOST_TOPS
    groups = _grouped(files, of_others, apart, unread)
    number = _sample(groups, most_seconds * 0.6)
    samples = {name: sample for group in groups.values() for name, sample in group.samples.items()}
    for name, sample in samples.items():
        if sample.shape is None:
            unread[name] = (sample.problem, size_of(files[name]))
    kind = cache(partial(_kind, samples=samples, files=files))
    repeats = cache(
        lambda names, shape, seconds: ids.repeat({name: files[name] for name in names}, shape, seconds)
    )
    corpora = _corpora(folder, groups, apart, of_others, kind, repeats)
    if not corpora:
        size = sum(size for _, size in unread.values())
        raise NothingReadableError(
            f"{folder}: no model can be made, since nothing in its {counted(len(files), 'files')} "
            f"({size:,} bytes) can be read: {'; '.join(reasons_of(unread)) or 'it has no files'}: "
            "add text, in the formats that docs/start.md names"
        )
    first = Folder(folder, corpora, unread, len(files), number, time.monotonic() - started)
    yield first
    corpora = _corpora(folder, groups, apart, of_others, lambda names: judged(kind(names)), repeats)
    yield replace(first, corpora=corpora)


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


def _grouped(
    files: Mapping[str, LocalFile], of_others: Collection[str], apart: bool, unread: Unread
) -> dict[tuple[str, str], _Group]:
    """The files by their format and, if sub-folders are told `apart`, by sub-folder. Adds to `unread` those
    `of_others`, those of no format that is read, and empty ones.
    """
    refused: dict[str, str] = {}
    groups: dict[tuple[str, str], _Group] = defaultdict(_Group)
    for name, file in files.items():
        if name in of_others:
            unread[name] = (
                "packages that others wrote: name their folder alone to learn them",
                size_of(file),
            )
        elif format_of(name)[0] not in FORMATS:
            alike = "".join(format_of(name)) or name
            if alike not in refused:
                refused[alike] = no_format(name, file)
            unread[name] = (refused[alike], size_of(file))
        elif not size_of(file):
            unread[name] = (no_content(file), 0)
        else:
            groups[_top(name) if apart else "", _suffix(name)].files[name] = file
    return groups


def _top(name: str) -> str:
    parts = PurePosixPath(name).parts
    return parts[0] if len(parts) > 1 else ""


def _suffix(name: str) -> str:
    """As it is written: `.txt`, `.JSONL.gz`."""
    plain, compression = format_of(name)
    return name[len(name) - len(plain + compression) :]


def _sample(groups: dict[tuple[str, str], _Group], seconds: float) -> int:
    """Samples files of all groups in turn, evenly over each, for so many seconds, but at least a few of each:
    of tables, which often differ in their columns, as many as there are. Returns how many.
    """
    turns, fewest = {}, {}
    for key, group in groups.items():
        names = list(group.files)
        every = max(1, len(names) / MOST_FILES)
        evenly = [names[int(place * every)] for place in range(min(len(names), MOST_FILES))]
        # Those that are taken at any rate are spread over all.
        first = evenly[:: max(1, len(evenly) // FEWEST_FILES)][:FEWEST_FILES]
        turns[key] = [*first, *(name for name in evenly if name not in first)]
        fewest[key] = FEWEST_FILES if format_of(names[0])[0] in PROSE else MOST_FILES
    number, until = 0, time.monotonic() + seconds
    for turn in range(MOST_FILES):
        for key, names in turns.items():
            if turn < len(names) and (turn < fewest[key] or time.monotonic() < until):
                group = groups[key]
                group.samples[names[turn]] = sampled(names[turn], group.files[names[turn]])
                number += 1
    for group in groups.values():
        group.samples = {name: group.samples[name] for name in group.files if name in group.samples}
    return number


def _corpora(
    folder: Path,
    groups: dict[tuple[str, str], _Group],
    apart: bool,
    left_out: Collection[str],
    kind: Callable[[tuple[str, ...]], Kind],
    repeats: Callable[[tuple[str, ...], Shape, float], bool],
) -> tuple[FoundCorpus, ...]:
    """Files of one shape and one quality profile are a corpus. `apart`: whether each sub-folder has a kind of
    its own. `left_out`: files that no glob may match. `repeats`: whether ids of rows repeat, as far
    as so many seconds show.
    """
    files, samples = dict[str, LocalFile](), dict[str, FileSample]()
    alike: dict[tuple[str, Shape], list[str]] = defaultdict(list)
    for group in groups.values():
        files |= group.files
        samples |= group.samples
        for name, shape in group.shapes():
            alike[_top(name) if apart else "", shape].append(name)
    merged: dict[tuple[Shape, str], list[str]] = defaultdict(list)
    kinds: dict[tuple[Shape, str], list[Kind]] = defaultdict(list)
    for (_, shape), together in alike.items():
        for names in _programs_apart(together, files):
            chosen = kind(tuple(names))
            merged[shape, chosen.profile].extend(names)
            kinds[shape, chosen.profile].append(chosen)
    taken: set[str] = set()
    found = []
    for key, names in sorted(merged.items(), key=lambda item: min(item[1])):
        chosen = kinds[key][0] if len(kinds[key]) == 1 else kind(tuple(names))
        name = _name({_top(name) for name in names}, *key, folder, taken)
        paths = tuple(_patterns(folder, names, [*files, *left_out]))
        read = [samples[name] for name in names if name in samples and samples[name].shape]
        sizes = [size_of(files[name]) for name in names]
        seconds = ids.MOST_SECONDS / len(merged)
        repeated = any(sample.has_ids for sample in read) and repeats(tuple(names), key[0], seconds)
        found.append(_corpus(name, paths, key[0], chosen, sizes=sizes, read=read, repeats_ids=repeated))
    return tuple(found)


def _programs_apart(names: Sequence[str], files: Mapping[str, LocalFile]) -> Iterator[Sequence[str]]:
    """The programs and the other files, or all together where one of both has a few bytes only."""
    sides: tuple[list[str], list[str]] = ([], [])
    sizes = [0, 0]
    for name in names:
        is_program = format_of(name)[0] in PROGRAMS
        sides[is_program].append(name)
        sizes[is_program] += size_of(files[name])
    yield from sides if all(sides) and min(sizes) >= LEAST_APART * sum(sizes) else [names]


def _corpus(
    name: str,
    paths: tuple[str, ...],
    shape: Shape,
    kind: Kind,
    *,
    sizes: Sequence[int],
    read: Sequence[FileSample],
    repeats_ids: bool,
) -> FoundCorpus:
    """A corpus of files with these `sizes`, of which some were `read`."""
    text_bytes = round(sum(sizes) * sum(sample.text_share for sample in read) / max(len(read), 1))
    lengths = sorted(len(text.encode("utf-8", "replace")) for sample in read for text in sample.texts)
    mean = max(1.0, sum(lengths) / max(len(lengths), 1))
    first = [text for sample in read for text in sample.texts[:FIRST_TEXTS]]
    return FoundCorpus(
        name=name,
        paths=paths,
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
        repeats_ids=repeats_ids,
    )


def _kind(names: Sequence[str], samples: dict[str, FileSample], files: dict[str, LocalFile]) -> Kind:
    here = {name: samples[name] for name in names if name in samples and samples[name].shape}
    texts = [text for sample in here.values() for text in sample.texts]
    columns = frozenset[str]().union(*(sample.columns for sample in here.values()))
    plain = [
        round(size_of(files[name]) * sample.text_share)
        for name, sample in here.items()
        if sample.shape and sample.shape.is_file
    ]
    return kind_of(texts, [format_of(name)[0] for name in here], plain, columns)


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


def _patterns(folder: Path, names: Sequence[str], readable: Sequence[str]) -> Iterator[str]:
    """Globs that match these files and none of the other `readable` ones, whatever is added later."""
    chosen = frozenset(names)
    by_suffix: dict[str, list[str]] = defaultdict(list)
    for name in readable:
        by_suffix[_suffix(name)].append(name)
    root = re.sub("[\udc80-\udcff]", "?", escape(folder.name))
    root = re.sub("^~", "[~]", root)  # which would stand for a home directory
    for suffix in dict.fromkeys(map(_suffix, names)):
        others = by_suffix[suffix]
        if chosen.issuperset(others):
            yield f"{root}/**/*{escape(suffix)}"
            continue
        yield from (f"{root}/{pattern}" for pattern in _below("", suffix, others, chosen))


def _below(place: str, suffix: str, names: Sequence[str], chosen: frozenset[str]) -> Iterator[str]:
    """Globs that match the `chosen` of the files below a folder and none of the other `names`."""
    direct = [name for name in names if "/" not in name[len(place) :]]
    within = _magic(place) if place else ""
    if not chosen.isdisjoint(direct) and chosen.issuperset(direct):
        yield f"{within}*{escape(suffix)}"
    else:
        yield from (_magic(name) for name in direct if name in chosen)
    folders: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if "/" in (rest := name[len(place) :]):
            folders[f"{place}{rest.partition('/')[0]}/"].append(name)
    for folder, inside in folders.items():
        if chosen.issuperset(inside):
            yield f"{_magic(folder)}**/*{escape(suffix)}"
        elif not chosen.isdisjoint(inside):
            yield from _below(folder, suffix, inside, chosen)


def _magic(name: str) -> str:
    """A glob that matches this name. Files are named by their path below the first wildcard, so a wildcard at
    the beginning keeps the names of files in different sub-folders apart. `listed` writes what is no UTF-8 as
    `%XX`.
    """
    first = escape(name[0]) if name[0] == "[" else f"[{name[0]}]"
    if re.match(_NOT_UTF8, name):
        first, name = "*", name[2:]
    return first + re.sub(_NOT_UTF8, "*", escape(name[1:]))
