"""Two processes with a share of the threads each against one process with all of them, on the same run:
tokens per second.

python performance/ddp.py
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import yaml
from harness import training_run
from harness.sidebyside import ROOT, record, texts

from pipeline.stages import bpe
from trainer.system import launch

VOCAB, SEQ_LEN, ROWS = 8192, 512, 8
MODEL = {
    "n_layers": 6,
    "d_model": 384,
    "n_heads": 6,
    "n_kv_heads": 6,
    "d_ff": 1024,
    "tie_embeddings": True,
    "qk_norm": False,
}
# The first step warms up.
STEPS, WARMUP = 5, 1


def prepare(directory: Path) -> dict[str, object]:
    """The configuration of a run over real text."""
    pieces = [
        text[at : at + 10_000] for text in texts(("enwiki", "books"), 4) for at in range(0, len(text), 10_000)
    ]
    tokens = ROWS * SEQ_LEN
    training = {
        "model": MODEL,
        "seq_len": SEQ_LEN,
        "global_batch_tokens": tokens,
        "micro_batch_size": ROWS // 2,
        "max_tokens": STEPS * tokens,
        "precision": "fp32",
        "optimizer": {"kind": "adamw", "lr": 1e-3},
        "schedule": {"kind": "cosine", "warmup_tokens": 0},
        "checkpoint": {"every_tokens": STEPS * tokens},
        "evaluation": {"every_tokens": STEPS * tokens},
    }
    tokenizer = bpe.train([pa.array(pieces)], bpe.TokenizerParams(vocab_size=VOCAB))
    config: dict[str, object] = yaml.safe_load(
        training_run.write(directory, tokenizer, pieces[1:], pieces[0], training).read_text()
    )
    return config


def tokens_per_second(config: dict[str, object], directory: Path, name: str, processes: int) -> float:
    """Of the median step of a run of its own."""
    path = directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**config, "run_dir": str(directory / name)}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free.getsockname()[1]),
            "WORLD_SIZE": str(processes),
        }
    # As torchrun starts them, but in this session: what gives it the processor gives it to them too.
    shared = os.environ | launch.environment(processes=processes) | meeting
    ranks = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
    trainers = [
        subprocess.Popen(launch.command(path), cwd=ROOT, env=rank, stderr=subprocess.DEVNULL)
        for rank in ranks
    ]
    if any(trainer.wait() for trainer in trainers):
        raise SystemExit(f"{path}: a trainer failed")
    records = map(json.loads, (directory / name / "metrics.jsonl").read_text().splitlines())
    return statistics.median(
        record["tokens_per_second"]
        for record in records
        if record["kind"] == "train" and record["step"] > WARMUP
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--turns", type=int, default=2)
    chosen = options.parse_args()
    cores = launch.physical_cores()
    speeds: dict[int, list[float]] = {1: [], cores: []}
    with tempfile.TemporaryDirectory() as directory:
        config = prepare(Path(directory))
        for turn in range(chosen.turns):
            for processes, found in speeds.items():
                found.append(
                    tokens_per_second(config, Path(directory), f"{processes}-processes-{turn}", processes)
                )
    report = {
        "one process": {"threads": cores, "tokens_per_s": [round(speed) for speed in speeds[1]]},
        f"{cores} processes": {"threads": 1, "tokens_per_s": [round(speed) for speed in speeds[cores]]},
        "ratio": round(statistics.median(speeds[cores]) / statistics.median(speeds[1]), 3),
    }
    record("ddp", report, ("torch",))


if __name__ == "__main__":
    main()
