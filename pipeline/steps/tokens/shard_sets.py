"""Finds token shards and their tokenizer: in the store by manifest, in a directory by file name."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from pipeline.stages.tokenizer import Boundaries, boundaries
from pipeline.steps.tokens.shards import prefixes
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import file_sha256
from pipeline.store.keys import SPLITS
from pipeline.store.manifest import Version
from trainer.data.shards import Shard, ShardError, bin_path, idx_path

RECORD = "shards.json"


class ShardSetError(PipelineError):
    """Token shards that are missing, or that another tokenizer made."""


@dataclass(frozen=True)
class ShardSet:
    """The token shards of one corpus and split, in the order in which they are read.

    `sha256`: the recorded hashes of their files, by path.
    """

    corpus: str
    split: str
    prefixes: tuple[Path, ...]
    sha256: Mapping[Path, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.corpus} {self.split}".strip()


def stored(version: Version, split: str) -> ShardSet:
    """The shards of a split in a version of `token_shards/<corpus>`."""
    hashes = {
        version.file(part, table).path: file.sha256
        for part in version.parts
        for table, file in part.files.items()
    }
    return ShardSet(keys.corpus(version.key), split, tuple(prefixes(version, split)), hashes)


def in_place(path: Path, splits: Sequence[str]) -> list[ShardSet]:
    """The shards at `path`: a directory, with or without `train` and `validation` in it, or the name of one
    shard. Raises ShardSetError.
    """
    prefix = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    if idx_path(prefix).is_file():
        return [ShardSet(str(prefix), "", (prefix,))]
    hashes = _recorded(path)
    indexes = sorted({*path.rglob("*.idx"), *(file for file in hashes if file.suffix == ".idx")})
    sets = []
    for split in splits if any((path / split).is_dir() for split in SPLITS) else [""]:
        here = [index for index in indexes if index.is_relative_to(path / split)]
        if here:
            sets.append(ShardSet(str(path), split, tuple(index.with_suffix("") for index in here), hashes))
    if not sets:
        raise ShardSetError(
            f"{path}: no token shard is there; a shard is a .bin and an .idx of the same name"
        )
    return sets


def _recorded(path: Path) -> dict[Path, str]:
    """The record of `python -m pipeline tokenize` in a directory: the sha256 of each file."""
    record = path / RECORD
    if not record.is_file():
        return {}
    try:
        shards = json.loads(record.read_text(encoding="utf-8"))["shards"]
        return {path / name: sha256 for shard in shards for name, sha256 in shard["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ShardSetError(
            f"{record} is not a record of `tokenize` ({type(error).__name__}: {error}): write the shards "
            "again, or delete the record to read them without checking hashes"
        ) from error


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer to check and show shards with. `ends` is None when its configuration does not name them."""

    tokenizer: Tokenizer
    ends: Boundaries | None

    @property
    def size(self) -> int:
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def vocabulary(path: Path) -> Vocabulary:
    """The tokenizer in a directory, or a tokenizer.json. Raises ShardSetError."""
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        content = file.read_text(encoding="utf-8")
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library raises nothing more specific
        raise ShardSetError(f"{file}: cannot be read as a tokenizer.json: {error}") from error
    config = file.with_name("tokenizer_config.json")
    settings = config.read_text(encoding="utf-8") if config.is_file() else "{}"
    named = all(json.loads(settings).get(key) for key in ("bos_token", "eos_token"))
    return Vocabulary(tokenizer, boundaries(content, settings) if named else None)


def vocabulary_beside(path: Path) -> Vocabulary | None:
    """The tokenizer next to the shards in a directory, if there is one."""
    for place in (path, path / "tokenizer", path.parent, path.parent / "tokenizer"):
        if (place / "tokenizer.json").is_file():
            return vocabulary(place)
    return None


def problems(prefix: Path, sha256: Mapping[Path, str], known: Vocabulary | None) -> Iterator[str]:
    """The problems of a shard, by file and document, the first of each kind. Reads every byte; memory does
    not grow with the shard.
    """
    for path in (bin_path(prefix), idx_path(prefix)):
        expected = sha256.get(path)
        if expected and path.is_file() and (actual := file_sha256(path)) != expected:
            yield f"{path}: sha256 is {actual}, but the manifest says {expected}"
    try:
        shard = Shard(prefix)
        shard.check_index()
    except ShardError as error:
        yield str(error)
        return
    checks = [] if known is None else [partial(shard.check_ids, known.size)]
    if known is not None and known.ends is not None:
        checks.append(partial(shard.check_ends, known.ends.begin, known.ends.end))
    for check in checks:
        try:
            check()
        except ShardError as error:
            yield str(error)
