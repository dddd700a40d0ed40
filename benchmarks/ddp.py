"""Two processes with a share of the threads each against one process with all of them, on the same run: tokens per second.

python benchmarks/ddp.py
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import training_run
import yaml
from sidebyside import ROOT, record, texts

from pipeline.stages import tokenizer as bpe
from trainer import launch

VOCAB, SEQ_LEN, ROWS = 8192, 512, 16
MODEL = {"n_layers": 6, "d_model": 384, "n_heads": 6, "n_kv_heads": 6, "d_ff": 1024, "tie_embeddings": True}
# The first steps warm up.
STEPS, WARMUP = 8, 3


def prepare(directory: Path) -> dict[str, object]:
    """The configuration of a run over real text."""
    pieces = [text[at : at + 10_000] for text in texts(("enwiki", "books"), 4) for at in range(0, len(text), 10_000)]
    tokens = ROWS * SEQ_LEN
    training = {
        "model": MODEL,
        "seq_len": SEQ_LEN,
        "global_batch_tokens": tokens,
        "micro_batch_size": ROWS // 2,
        "max_tokens": STEPS * tokens,
        "precision": "fp32",
        "optimizer": {"lr": 1e-3},
        "checkpoint": {"every_tokens": STEPS * tokens, "model_only": True},
        "evaluation": {"every_tokens": STEPS * tokens},
    }
    tokenizer = bpe.train([pieces], bpe.TokenizerParams(vocab_size=VOCAB))
    config: dict[str, object] = yaml.safe_load(training_run.write(directory, tokenizer, pieces[1:], pieces[0], training).read_text())
    return config


def tokens_per_second(config: dict[str, object], directory: Path, name: str, processes: int) -> float:
    """Of the median step of a run of its own."""
    path = directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**config, "run_dir": str(directory / name)}))
    environment = os.environ | launch.environment(processes=processes)
    subprocess.run(launch.command(path, processes), cwd=ROOT, env=environment, check=True, stderr=subprocess.DEVNULL)
    records = map(json.loads, (directory / name / "metrics.jsonl").read_text().splitlines())
    return statistics.median(record["tokens_per_second"] for record in records if record["kind"] == "train" and record["step"] > WARMUP)


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
                found.append(tokens_per_second(config, Path(directory), f"{processes}-processes-{turn}", processes))
    report = {
        "one process": {"threads": cores, "tokens_per_s": [round(speed) for speed in speeds[1]]},
        f"{cores} processes": {"threads": 1, "tokens_per_s": [round(speed) for speed in speeds[cores]]},
        "ratio": round(statistics.median(speeds[cores]) / statistics.median(speeds[1]), 3),
    }
    record("ddp", report, ("torch",))


if __name__ == "__main__":
    main()
