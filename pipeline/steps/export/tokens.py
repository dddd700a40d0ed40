"""Token shards in the formats that other training code reads. Tokens are streamed: memory does not grow with
the corpora.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import numpy as np

from pipeline.steps.export.manifest import record
from pipeline.steps.tokens.shard_sets import ShardSet, stored, vocabulary_of
from pipeline.store import keys
from pipeline.store.atomic import output_directory
from pipeline.store.errors import PipelineError
from pipeline.store.versions import Store
from trainer.data.shards import Shard, ShardError, TokenStream, bin_path, idx_path

BLOCK_TOKENS = 1 << 22
LLMC_FILE_TOKENS = 100_000_000
LLMC_HEADER_INTS = 256
# Magic and version by the size of a token. llm.c's own GPT-2 reads the first, its train_llama3.py the second.
LLMC_KINDS = {2: (20240520, 1), 4: (20240801, 7)}
TOKENIZER = "tokenizer"

Progress = Callable[[int], object]  # told the tokens that are written


class TokenFormat(StrEnum):
    MEGATRON = "megatron"
    DATATROVE = "datatrove"
    LLMC = "llmc"
    NANOGPT = "nanogpt"


class ExportError(PipelineError):
    """Shards that cannot be written in the format asked for."""


def export_tokens(
    store: Store,
    chosen: TokenFormat,
    corpora: Sequence[str],
    splits: Sequence[str],
    out: Path,
    progress: Progress,
) -> dict[str, int]:
    """Makes `out`: the shards in use, their tokenizer, and `export.json`, which says what they are. Returns
    documents and tokens of each split.

    Raises StoreError, ShardSetError, ExportError and OutputError.
    """
    versions = [store.current(keys.token_shards(corpus)) for corpus in corpora]
    known = vocabulary_of(store, versions)
    sets = [shards for version in versions for split in splits if (shards := stored(version, split)).prefixes]
    if not sets:
        raise ExportError(f"{', '.join(corpora)}: there is no token in {' or '.join(splits)}")
    names = [f"{split}_{what}" for split in splits for what in ("documents", "tokens")]
    counts = {name: sum(version.counts[name] for version in versions) for name in names}
    with output_directory(out) as directory:
        write(chosen, sets, directory, progress)
        (directory / TOKENIZER).mkdir()
        for path in known.directory.glob("*token*.json"):
            shutil.copyfile(path, directory / TOKENIZER / path.name)
        record(directory, chosen, [*versions, store.current(keys.TOKENIZER)], counts)
    return counts


def write(chosen: TokenFormat, sets: Sequence[ShardSet], out: Path, progress: Progress) -> None:
    """Fills `out`, an empty directory. Raises ExportError when they are damaged, or the format cannot
    hold them.
    """
    writers = {
        TokenFormat.MEGATRON: _megatron,
        TokenFormat.DATATROVE: _datatrove,
        TokenFormat.LLMC: _llmc,
        TokenFormat.NANOGPT: _nanogpt,
    }
    try:
        writers[chosen](sets, out, progress)
    except ShardError as error:
        raise ExportError(str(error)) from error


def _megatron(sets: Sequence[ShardSet], out: Path, progress: Progress) -> None:
    """`<corpus>/<split>/<shard>.bin` and `.idx`: the shards as they are."""
    for shards in sets:
        directory = out / shards.corpus / shards.split
        directory.mkdir(parents=True)
        for prefix in shards.prefixes:
            for path in (bin_path(prefix), idx_path(prefix)):
                _link(path, directory / path.name)
            progress(Shard(prefix).num_tokens)


def _datatrove(sets: Sequence[ShardSet], out: Path, progress: Progress) -> None:
    """`<split>/<corpus>-<shard>.ds`, the raw tokens; `.ds.index`, u64 document ends in tokens;
    `.ds.metadata`, tokenizer, token size and count.
    """
    for shards in sets:
        (out / shards.split).mkdir(exist_ok=True)
        for prefix in shards.prefixes:
            shard, path = Shard(prefix), out / shards.split / f"{shards.corpus}-{prefix.name}.ds"
            _link(bin_path(prefix), path)
            with path.with_name(f"{path.name}.index").open("wb") as index:
                end = 0
                for first in range(0, shard.num_documents, BLOCK_TOKENS):
                    ends = end + np.cumsum(shard.lengths[first : first + BLOCK_TOKENS], dtype="<u8")
                    index.write(ends.data)
                    end = ends[-1]
            described = (
                f"{TOKENIZER}|{shard.dtype.itemsize}\n{shard.num_tokens}\n{shard.num_tokens / 1e6:.2f} MT"
            )
            path.with_name(f"{path.name}.metadata").write_text(described, encoding="utf-8")
            progress(shard.num_tokens)


def _llmc(sets: Sequence[ShardSet], out: Path, progress: Progress) -> None:
    """`tokens_train_000000.bin`, `tokens_val_000000.bin`, ...: a header of 256 int32, then the tokens, all
    corpora end to end.
    """
    for split, stream in _streams(sets):
        magic, version = LLMC_KINDS[_token_bytes(stream)]
        files = -(-stream.num_tokens // LLMC_FILE_TOKENS)
        # Of equal size, since llm.c refuses a file that has less than a batch.
        cuts = [stream.num_tokens * number // files for number in range(files + 1)]
        for number in range(files):
            header = np.zeros(LLMC_HEADER_INTS, "<i4")
            header[:3] = magic, version, cuts[number + 1] - cuts[number]
            with (out / f"tokens_{split}_{number:06d}.bin").open("wb") as file:
                file.write(header.data)
                for block in _blocks(stream, cuts[number], cuts[number + 1], progress):
                    file.write(block.data)


def _nanogpt(sets: Sequence[ShardSet], out: Path, progress: Progress) -> None:
    """`train.bin` and `val.bin`: raw uint16 tokens, all corpora end to end."""
    for split, stream in _streams(sets):
        if _token_bytes(stream) != 2:
            raise ExportError(
                "nanogpt reads uint16, but these shards hold ids above 65,535: export to megatron, datatrove "
                "or llmc, or use a smaller vocabulary"
            )
        with (out / f"{split}.bin").open("wb") as file:
            for block in _blocks(stream, 0, stream.num_tokens, progress):
                file.write(block.data)


def _streams(sets: Sequence[ShardSet]) -> Iterator[tuple[str, TokenStream]]:
    """All corpora of a split as one stream, under the names that Karpathy's programs give to splits."""
    for split, name in (("train", "train"), ("validation", "val")):
        prefixes = [prefix for shards in sets if shards.split == split for prefix in shards.prefixes]
        if prefixes:
            yield name, TokenStream(prefixes)


def _token_bytes(stream: TokenStream) -> int:
    return max(shard.dtype.itemsize for shard in stream.shards)


def _blocks(stream: TokenStream, start: int, stop: int, progress: Progress) -> Iterator[np.ndarray]:
    """Contiguous, all of one type."""
    dtype = f"<u{_token_bytes(stream)}"
    for first in range(start, stop, BLOCK_TOKENS):
        block = stream.window(first, min(BLOCK_TOKENS, stop - first))
        yield np.ascontiguousarray(block, dtype)
        progress(len(block))


def _link(source: Path, target: Path) -> None:
    """A hard link, which takes no space; a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
