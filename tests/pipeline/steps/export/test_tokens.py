"""Token shards in other programs' formats, read as those read them: a few lines each, none of ours."""

import itertools
import struct
from pathlib import Path

import numpy as np
import pytest

from examples import other_token_formats
from pipeline.steps.export.tokens import write
from pipeline.steps.tokens.shard_sets import ShardSet
from pipeline.store.errors import PipelineError
from trainer.data.shard_writer import ShardWriter
from trainer.data.shards import ShardError, bin_path

Documents = list[list[int]]
# The shards of `<corpus>-<split>`.
FOUND: dict[str, list[Documents]] = {
    "a-train": [[[1, 2, 3], [4]], [[65_535, 6]], [[7], [8], [9, 10, 11, 12, 13]]],
    "a-validation": [[[14, 15]]],
    "b-train": [[[16, 17, 18]]],
}


def stored(folder: Path, found: dict[str, list[Documents]], dtype: str = "uint16") -> list[ShardSet]:
    sets = []
    for name, shards in found.items():
        corpus, _, split = name.partition("-")
        prefixes = [folder / "in" / corpus / split / f"part.{number:05d}" for number in range(len(shards))]
        for prefix, documents in zip(prefixes, shards, strict=True):
            with ShardWriter(prefix, np.dtype(dtype)) as writer:
                for document in documents:
                    writer.add(np.array(document))
        sets.append(ShardSet(corpus, split, tuple(prefixes)))
    return sets


def export(folder: Path, chosen: str, found: dict[str, list[Documents]], dtype: str = "uint16") -> Path:
    """As a user does: shards exported for Megatron; for another program the example reads these."""
    exported = folder / "megatron"
    exported.mkdir()
    write(stored(folder, found, dtype), exported, lambda tokens: None)
    if chosen == "megatron":
        return exported
    out = folder / chosen
    out.mkdir()
    other_token_formats.FORMATS[chosen](other_token_formats.shard_sets(exported), out)
    return out


def flat(found: dict[str, list[Documents]], split: str) -> list[int]:
    return [
        token
        for name, shards in found.items()
        if name.endswith(split)
        for documents in shards
        for document in documents
        for token in document
    ]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_megatron_finds_each_document_by_the_index(tmp_path: Path, dtype: str) -> None:
    out = export(tmp_path, "megatron", FOUND, dtype)
    for name, shards in FOUND.items():
        for number, documents in enumerate(shards):
            prefix = out / name.replace("-", "/") / f"part.{number:05d}"
            index, tokens = (Path(f"{prefix}{suffix}").read_bytes() for suffix in (".idx", ".bin"))
            magic, version, code, sequences, starts = struct.unpack_from("<9sQBQQ", index)
            assert (magic, version, sequences, starts) == (
                b"MMIDIDX\0\0",
                1,
                len(documents),
                len(documents) + 1,
            )
            read = {8: np.uint16, 4: np.int32}[code]
            lengths = np.frombuffer(index, np.int32, sequences, 34)
            pointers = np.frombuffer(index, np.int64, sequences, 34 + 4 * sequences)
            assert np.frombuffer(index, np.int64, starts, 34 + 12 * sequences).tolist() == [*range(starts)]
            pairs = zip(lengths.tolist(), pointers.tolist(), strict=True)
            found = [np.frombuffer(tokens, read, length, pointer).tolist() for length, pointer in pairs]
            assert found == documents


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_datatrove_finds_each_document_by_its_end(tmp_path: Path, dtype: str) -> None:
    out = export(tmp_path, "datatrove", FOUND, dtype)
    for name, shards in FOUND.items():
        corpus, _, split = name.partition("-")
        for number, documents in enumerate(shards):
            path = out / split / f"{corpus}-part.{number:05d}.ds"
            tokens, ends = np.fromfile(path, dtype), np.fromfile(f"{path}.index", np.uint64).tolist()
            assert [tokens[first:end].tolist() for first, end in itertools.pairwise([0, *ends])] == documents
            described = Path(f"{path}.metadata").read_text().splitlines()
            assert described[:2] == [f"tokenizer|{tokens.itemsize}", str(len(tokens))]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("file_tokens", [1, 5, 40])
def test_llmc_reads_a_header_and_as_many_tokens_as_it_says(
    tmp_path: Path, dtype: str, file_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_token_formats, "LLMC_FILE_TOKENS", file_tokens)
    monkeypatch.setattr(other_token_formats, "BLOCK_TOKENS", 7)
    out = export(tmp_path, "llmc", FOUND, dtype)
    for split, name in (("train", "train"), ("validation", "val")):
        read, sizes = [], []
        for path in sorted(out.glob(f"tokens_{name}_*.bin")):
            header = np.fromfile(path, np.int32, 256)
            tokens = np.fromfile(path, dtype, offset=1024)
            kind = (20240520, 1) if dtype == "uint16" else (20240801, 7)
            assert header[:3].tolist() == [*kind, len(tokens)]
            assert not header[3:].any()
            read += tokens.tolist()
            sizes.append(len(tokens))
        assert read == flat(FOUND, split)
        assert file_tokens >= max(sizes) >= min(sizes) >= max(sizes) - 1


@pytest.mark.parametrize("found", [FOUND, {"a-train": FOUND["a-train"]}])
def test_nanogpt_maps_one_file_for_each_split(
    tmp_path: Path, found: dict[str, list[Documents]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_token_formats, "BLOCK_TOKENS", 7)
    out = export(tmp_path, "nanogpt", found)
    assert np.memmap(out / "train.bin", np.uint16, mode="r").tolist() == flat(found, "train")
    held_out = flat(found, "validation")
    assert (out / "val.bin").exists() == bool(held_out)
    assert not held_out or np.memmap(out / "val.bin", np.uint16, mode="r").tolist() == held_out


def test_nanogpt_is_refused_ids_that_it_would_read_wrongly(tmp_path: Path) -> None:
    with pytest.raises(
        ShardError,
        match="nanoGPT reads uint16, but these shards hold ids above 65,535: write datatrove or llmc",
    ):
        export(tmp_path, "nanogpt", {"a-train": [[[70_000]]]}, "uint32")


def test_a_damaged_shard_is_not_exported(tmp_path: Path) -> None:
    sets = stored(tmp_path, {"a-train": [[[1, 2, 3]]]})
    bin_path(sets[0].prefixes[0]).write_bytes(b"cut")
    (tmp_path / "out").mkdir()
    with pytest.raises(PipelineError, match=r"part.00000.bin: 3 bytes, but its index counts 3 tokens"):
        write(sets, tmp_path / "out", lambda tokens: None)


def test_the_example_runs_on_what_tokenize_or_export_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = export(tmp_path, "megatron", {"a-train": [[[1, 2, 3]]], "b-train": [[[4]]]})
    for shards, expected in ((exported, [1, 2, 3, 4]), (exported / "a", [1, 2, 3])):
        out = tmp_path / f"nanogpt-{len(expected)}"
        monkeypatch.setattr("sys.argv", ["other_token_formats.py", "nanogpt", str(shards), str(out)])
        other_token_formats.main()
        assert np.fromfile(out / "train.bin", np.uint16).tolist() == expected
        assert f"written: {out}" in capsys.readouterr().out
