"""Token shards in the formats of datatrove, llm.c and nanoGPT.

    python -m pipeline export --format megatron -o shards
    python examples/other_token_formats.py llmc shards OUT

Reads any directory of Megatron shards in which `train` and `validation` are folders, such as that of
`python -m pipeline tokenize`. Tokens are streamed: memory does not grow with the shards.
"""

import argparse
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pipeline.steps.tokens.shard_sets import ShardSet
from trainer.data.shards import Shard, ShardError, TokenStream, bin_path

BLOCK_TOKENS = 1 << 22
LLMC_FILE_TOKENS = 100_000_000
LLMC_HEADER_INTS = 256
# Magic and version by the size of a token. llm.c's own GPT-2 reads the first, its train_llama3.py the second.
LLMC_KINDS = {2: (20240520, 1), 4: (20240801, 7)}


def shard_sets(directory: Path) -> list[ShardSet]:
    """The shards in `<corpus>/<split>/` or `<split>/` below the directory."""
    folders = sorted({index.parent for index in directory.rglob("*.idx")})
    return [
        ShardSet(
            folder.parent.name,
            folder.name,
            tuple(path.with_suffix("") for path in sorted(folder.glob("*.idx"))),
        )
        for folder in folders
        if folder.name in ("train", "validation")
    ]


def datatrove(sets: Sequence[ShardSet], out: Path) -> None:
    """`<split>/<corpus>-<shard>.ds`, the raw tokens; `.ds.index`, u64 document ends in tokens;
    `.ds.metadata`, tokenizer, token size and count.
    """
    for shards in sets:
        (out / shards.split).mkdir(exist_ok=True)
        for prefix in shards.prefixes:
            shard, path = Shard(prefix), out / shards.split / f"{shards.corpus}-{prefix.name}.ds"
            shutil.copyfile(bin_path(prefix), path)
            np.cumsum(shard.lengths, dtype="<u8").tofile(f"{path}.index")
            size = f"{shard.dtype.itemsize}\n{shard.num_tokens}\n{shard.num_tokens / 1e6:.2f} MT"
            path.with_name(f"{path.name}.metadata").write_text(f"tokenizer|{size}", encoding="utf-8")


def llmc(sets: Sequence[ShardSet], out: Path) -> None:
    """`tokens_train_000000.bin`, `tokens_val_000000.bin`, ...: 256 int32, then tokens, corpora end to end."""
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
                for block in _blocks(stream, cuts[number], cuts[number + 1]):
                    file.write(block.data)


def nanogpt(sets: Sequence[ShardSet], out: Path) -> None:
    """`train.bin` and `val.bin`: uint16 tokens, corpora end to end. Raises ShardError for larger ids."""
    for split, stream in _streams(sets):
        if _token_bytes(stream) != 2:
            raise ShardError(
                "nanoGPT reads uint16, but these shards hold ids above 65,535: write datatrove or llmc, or "
                "use a smaller vocabulary"
            )
        with (out / f"{split}.bin").open("wb") as file:
            for block in _blocks(stream, 0, stream.num_tokens):
                file.write(block.data)


FORMATS = {"datatrove": datatrove, "llmc": llmc, "nanogpt": nanogpt}
# What opens each format.
READERS = {
    "datatrove": 'DatatroveFolderDataset("{out}/train", seq_len=2048, token_size=2), 4 for ids above 65,535',
    "llmc": 'llm.c: -i "{out}/tokens_train_*.bin" -j "{out}/tokens_val_*.bin"; ids above 65,535 only by its '
    "train_llama3.py",
    "nanogpt": "nanoGPT: put this directory below its data/ and name it in `dataset`; without a meta.pkl its "
    "vocabulary is 50,304",
}


def _streams(sets: Sequence[ShardSet]) -> Iterator[tuple[str, TokenStream]]:
    """All corpora of a split as one stream, under the names that Karpathy's programs give to splits."""
    for split, name in (("train", "train"), ("validation", "val")):
        prefixes = [prefix for shards in sets if shards.split == split for prefix in shards.prefixes]
        if prefixes:
            yield name, TokenStream(prefixes)


def _token_bytes(stream: TokenStream) -> int:
    return max(shard.dtype.itemsize for shard in stream.shards)


def _blocks(stream: TokenStream, start: int, stop: int) -> Iterator[np.ndarray]:
    """Contiguous blocks of one type."""
    dtype = f"<u{_token_bytes(stream)}"
    for first in range(start, stop, BLOCK_TOKENS):
        yield np.ascontiguousarray(stream.window(first, min(BLOCK_TOKENS, stop - first)), dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write Megatron token shards in another program's format.")
    parser.add_argument("format", choices=tuple(FORMATS))
    parser.add_argument("shards", type=Path, help="a directory of Megatron shards")
    parser.add_argument("out", type=Path, help="the directory to make")
    options = parser.parse_args()
    sets = shard_sets(options.shards)
    if not sets:
        parser.error(f"{options.shards} holds no shard in a folder `train` or `validation`")
    try:
        options.out.mkdir(parents=True)
        FORMATS[options.format](sets, options.out)
    except (OSError, ShardError) as error:
        parser.error(str(error))
    print(f"written: {options.out}\nopened by {READERS[options.format].format(out=options.out)}")


if __name__ == "__main__":
    main()
