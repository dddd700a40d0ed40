"""docs/trainer.md: the trainer alone, on shards that another program wrote."""

import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from tokenizers import ByteLevelBPETokenizer

TEXTS = [text for _, text in sorted(topics.items())]
TRAINING = {
    "model": {"n_layers": 1, "d_model": 32, "n_heads": 2, "n_kv_heads": 1, "d_ff": 64},
    "seq_len": 64,
    "global_batch_tokens": 512,
    "micro_batch_size": 8,
    "max_tokens": 8192,
    "checkpoint": {"every_tokens": 4096},
    "evaluation": {"every_tokens": 4096},
}


def write_megatron(prefix: Path, documents: list[list[int]]) -> None:
    """As Megatron-LM's IndexedDatasetBuilder writes uint16."""
    lengths = np.array([len(one) for one in documents], "<i4")
    offsets = 2 * np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype("<i8")
    starts = np.arange(len(documents) + 1, dtype="<i8")
    header = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 8, len(lengths), len(starts))
    prefix.with_suffix(".idx").write_bytes(
        b"".join([header, *(x.tobytes() for x in (lengths, offsets, starts))])
    )
    prefix.with_suffix(".bin").write_bytes(np.concatenate(documents).astype("<u2").tobytes())


def test_shards_of_another_program_train_a_model_that_computes_what_it_should(tmp_path: Path) -> None:
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(TEXTS, vocab_size=400, special_tokens=["<s>", "</s>"], show_progress=False)
    (tmp_path / "tok").mkdir()
    tokenizer.save(str(tmp_path / "tok/tokenizer.json"))
    documents = [[0, *one.ids, 1] for one in tokenizer.encode_batch(TEXTS[:50])]
    write_megatron(tmp_path / "train", documents[:45])
    write_megatron(tmp_path / "held", documents[45:])
    corpus = {
        "name": "theirs",
        "weight": 1,
        "train": ["train"],
        "validation": ["held"],
        "validation_bytes": len("".join(TEXTS[45:50]).encode()),
    }
    data = {
        "tokenizer": "tok",
        "tokenizer_sha256": hashlib.sha256((tmp_path / "tok/tokenizer.json").read_bytes()).hexdigest(),
        "vocab_size": 400,
        "bot_id": 0,
        "eot_id": 1,
        "corpora": [corpus],
    }
    (tmp_path / "config.yaml").write_text(json.dumps({"run_dir": "run", "data": data, "training": TRAINING}))
    for arguments in (["config.yaml"], ["check", "--model=run"]):
        command = [sys.executable, "-m", "trainer", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    held_out = [record["bits_per_byte"] for record in records if record["kind"] == "evaluation"]
    assert len(held_out) > 1 and held_out == sorted(held_out, reverse=True)
