"""docs/plain-files.md and docs/trainer.md: from a file of documents to a model, without store or recipe."""

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.integration.project import TRAINING, python_topics
from tests.rows import jsonl

pytestmark = pytest.mark.slow


def ran(directory: Path, command: str) -> dict[str, int]:
    """The numbers that a command prints, by their names."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=directory, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows = [line.strip().rpartition(" ") for line in done.stdout.partition("\n\n")[0].splitlines()]
    return {name.strip(): int(number.replace(",", "")) for name, _, number in rows if number}


def megatron(prefix: Path) -> list[list[int]]:
    """The documents of a shard, read as Megatron-LM's IndexedDataset reads them."""
    index = Path(f"{prefix}.idx").read_bytes()
    count = int(np.frombuffer(index, "<u8", 1, 18)[0])
    lengths = np.frombuffer(index, "<i4", count, 34)
    starts = np.frombuffer(index, "<i8", count, 34 + 4 * count) // 2
    tokens = np.fromfile(f"{prefix}.bin", "<u2")
    return [tokens[start : start + length].tolist() for start, length in zip(starts, lengths, strict=True)]


def test_documents_go_through_every_command_to_a_model_and_none_is_lost(tmp_path: Path) -> None:
    originals = {row["id"]: row["text"] for row in python_topics()}
    jsonl(tmp_path / "all.jsonl", *python_topics())
    scrubbed = ran(tmp_path, "pipeline scrub all.jsonl -o clean")
    assert scrubbed["documents"] == len(originals)
    for span in pq.read_table(tmp_path / "clean/spans.parquet").to_pylist():
        assert originals[span["id"]][span["start"] : span["end"]] == "jane.doe@example.com"
    judged = ran(tmp_path, "pipeline quality clean/documents.parquet -o good --documents --profile docs")
    decided = ran(tmp_path, "pipeline dedup good/documents.parquet -o once --documents")
    assert judged["documents"] == scrubbed["documents"] and decided["documents"] == judged["kept"]
    assert decided["removed"] == decided["exact"] + decided["near"] >= 2
    kept = {row["id"]: row["text"] for row in pq.read_table(tmp_path / "once/documents.parquet").to_pylist()}
    assert len(kept) == decided["kept"]
    assert "jane.doe" not in "".join(kept.values()) and "[EMAIL]" in "".join(kept.values())

    ran(tmp_path, "pipeline train-tokenizer once/documents.parquet -o tok --vocab-size 512")
    encoded = ran(
        tmp_path,
        "pipeline tokenize once/documents.parquet --tokenizer tok --validation-fraction 0.1 -o shards",
    )
    assert encoded["train documents"] + encoded["validation documents"] == len(kept)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tok")
    decoded = []
    for split in ("train", "validation"):
        documents = megatron(tmp_path / "shards" / split / "part.00000")
        assert len(documents) == encoded[f"{split} documents"]
        assert sum(map(len, documents)) == encoded[f"{split} tokens"]
        for first, *tokens, last in documents:
            assert (first, last) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
            decoded.append(tokenizer.decode(tokens))
    assert sorted(decoded) == sorted(kept.values())

    config = {"run_dir": "run", "data": {"shards": "shards/shards.json"}, "training": TRAINING}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    ran(tmp_path, "trainer config.yaml")
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    *_, held_out = [record for record in records if record["kind"] == "evaluation"]
    (newest,) = (tmp_path / "run/checkpoints").glob("step-*32/hf")
    model = AutoModelForCausalLM.from_pretrained(newest, dtype=torch.float32)
    stream = [*chain.from_iterable(megatron(tmp_path / "shards/validation/part.00000"))]
    length = TRAINING["seq_len"]
    windows = [stream[at : at + length + 1] for at in range(0, len(stream) - length, length)]
    with torch.no_grad():
        logits = model(torch.tensor([window[:-1] for window in windows])).logits
    targets = torch.tensor([window[1:] for window in windows])
    theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
    assert held_out["loss"] == pytest.approx(theirs, rel=0.01)
