"""Finds token shards and their tokenizer: in the store by manifest, in a directory by file name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from pipeline.steps.tokens.shards import prefixes
from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS
from pipeline.store.manifest import Version
from trainer.config.model_files import TOKENIZER
from trainer.data.shards import idx_path


@dataclass(frozen=True)
class ShardSet:
    """The token shards of one corpus and split, in the order in which they are read."""

    corpus: str
    split: str
    prefixes: tuple[Path, ...]

    @property
    def name(self) -> str:
        return f"{self.corpus} {self.split}".strip()


def stored(version: Version, split: str) -> ShardSet:
    """The shards of a split in a version of `token_shards/<corpus>`."""
    return ShardSet(version.key.corpus, split, tuple(prefixes(version, split)))


def in_place(path: Path, splits: Sequence[str]) -> list[ShardSet]:
    """The shards at `path`, a directory (perhaps with `train`) or a shard's name. Raises PipelineError."""
    prefix = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    if idx_path(prefix).is_file():
        return [ShardSet(str(prefix), "", (prefix,))]
    sets = []
    for split in splits if any((path / split).is_dir() for split in SPLITS) else [""]:
        here = tuple(index.with_suffix("") for index in sorted((path / split).rglob("*.idx")))
        if here:
            sets.append(ShardSet(str(path), split, here))
    if not sets:
        raise PipelineError(
            f"{path}: no token shard is there; a shard is a .bin and an .idx of the same name"
        )
    return sets


def tokenizer_beside(path: Path) -> Tokenizer | None:
    """The tokenizer next to the shards in a directory, if there is one. Raises PipelineError."""
    for place in (path, path / "tokenizer", path.parent, path.parent / "tokenizer"):
        file = place / TOKENIZER
        if file.is_file():
            try:
                return Tokenizer.from_file(str(file))
            except Exception as error:  # the library raises nothing more specific
                raise PipelineError(f"{file}: cannot be read as a tokenizer.json: {error}") from error
    return None
