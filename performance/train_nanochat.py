"""Bits per byte of held-out text beside nanochat's model of the same depth, after the same time of training
on the same text.

python performance/train_nanochat.py DIRECTORY --nanochat CLONE [--depth 12] [--minutes 10] [--text FILE ...]

Without --text it needs the sample corpora in ../shared/corpora. Both have one tokenizer, trained on the text,
and the same batches. Ours is `python -m trainer` with `model: {depth: N}`. nanochat is its own GPT and its
own optimizer, with the rates, decay and schedules that its scripts/base_train.py at 92d63d4 gives this depth
and batch. It has its short windows where FlashAttention 3 is, as it advises.

How many steps fit into the minutes is found before: each takes a few, alone on the machine, and the median
step counts, without imports, compiling and evaluation. Schedules then end with the last of these steps.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from harness.sidebyside import CORPORA, ROOT, Report, sample
from peers.train import validation_loss

from trainer.config import RunConfig, load_run_config
from trainer.config import depth as laws
from trainer.data.loader import TrainingData
from trainer.data.shards import bin_path
from trainer.system import launch
from trainer.system.durable import read_json_lines
from trainer.system.prefetch import ahead

HELD_OUT = 100  # one in so many documents
WARMUP, TIMED = 3, 8
# What nanochat's base_train.py sets where the laws of depth say nothing.
SCALAR_LR, WARMUP_STEPS, MOMENTUM_STEPS = 0.5, 40, 400
MOMENTUM = (0.85, 0.97, 0.90)  # at first, at its highest, at the end


@dataclass(frozen=True)
class Scale:
    """`rows`: windows in a micro-batch. `megabytes`: of text that are read at most. `tokenizer_megabytes`: of
    them that the tokenizer is trained on.
    """

    vocab: int
    seq_len: int
    rows: int
    megabytes: int
    tokenizer_megabytes: int
    training: dict[str, Any]


SCALES = {
    "cuda": Scale(32_768, 2048, 32, 500, 100, {}),
    # nanochat trains in fp32 on a CPU.
    "cpu": Scale(1024, 128, 8, 2, 2, {"global_batch_tokens": 1024, "precision": "fp32", "compile": False}),
}


def samples() -> list[str]:
    """The sample corpora, where they are."""
    return [str(path) for path in sorted(CORPORA.glob("*.jsonl.zst"))]


def compare(
    directory: Path, device: str, clone: str, depth: int, minutes: float, text: list[str]
) -> dict[str, Any]:
    """`passed`: ours has the lower bits per byte. `seconds`: of the steps, by the median step."""
    config = prepare(directory, device, depth, text)
    batch = load_run_config(config).training.global_batch_tokens
    found: dict[str, Any] = {"depth": depth, "minutes": minutes, "tokens_a_step": batch}
    for name in ("groundwork", "nanochat"):

        def trained(steps: int, name: str = name) -> Report:
            return ours(config, steps) if name == "groundwork" else nanochat(config, steps, clone, device)

        steps = max(1, round(60 * minutes / trained(WARMUP + TIMED)["step_seconds"]))
        result = trained(steps)
        seconds = round(result.pop("step_seconds") * steps, 1)
        found[name] = {"tokens": steps * batch, "seconds": seconds, **result}
    bits = [found[name]["bits_per_byte"] for name in ("groundwork", "nanochat")]
    return found | {"passed": bits[0] < bits[1]}


def prepare(directory: Path, device: str, depth: int, text: list[str]) -> Path:
    """The configuration of ours, without its length. Imports what a machine that only trains may lack."""
    import pyarrow as pa
    from harness import training_run

    from pipeline.stages import bpe

    scale = SCALES[device]
    found = list(_texts(text, scale.megabytes))
    params = bpe.TokenizerParams(vocab_size=scale.vocab)
    tokenizer = bpe.train([pa.array(sample(found, scale.tokenizer_megabytes))], params)
    train = (document for number, document in enumerate(found) if number % HELD_OUT)
    training = {
        "model": {"depth": depth},
        "seq_len": scale.seq_len,
        "micro_batch_size": scale.rows,
        "checkpoint": {"every_tokens": 10**15},
        "evaluation": {"every_tokens": 10**15},
        **scale.training,
    }
    # Of long documents, too, no more than a hundredth is held out.
    held_out = "\n".join(found[::HELD_OUT])[: scale.megabytes * 1_000_000 // HELD_OUT]
    return training_run.write(directory, tokenizer, train, held_out, training)


def _texts(paths: list[str], megabytes: int) -> Iterator[str]:
    from pipeline.sources.files import FilesConfig, FilesSource

    left = megabytes * 1e6
    for batch in FilesSource("text", FilesConfig(paths=paths)).read_all([]):
        for document in batch.column("text").to_pylist():
            left -= len(document.encode())
            if left < 0:
                return
            yield document


def ours(config: Path, steps: int) -> Report:
    """A run of `python -m trainer` over so many steps."""
    batch = load_run_config(config).training.global_batch_tokens
    run = config.parent / f"run-{steps}"
    command = [*launch.command(config), f"run_dir={run}", f"training.max_tokens={steps * batch}"]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | launch.environment())
    lines = read_json_lines(run / "metrics.jsonl")
    milliseconds = [line["step_ms"] for line in lines if line["kind"] == "train"]
    evaluation = [line for line in lines if line["kind"] == "evaluation"][-1]
    return {
        "step_seconds": statistics.median(milliseconds[WARMUP:] or milliseconds) / 1000,
        "bits_per_byte": round(evaluation["bits_per_byte"], 4),
    }


def nanochat(config: Path, steps: int, clone: str, device: str) -> Report:
    """Its training over so many steps, in a process of its own."""
    command = [sys.executable, __file__, str(config.parent), "--peer", str(steps), "--nanochat", clone]
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [*command, "--device", device],
        check=True,
        cwd=ROOT,
        env=os.environ | launch.environment() | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )
    found: Report = json.loads(ended.stdout.splitlines()[-1])
    return found


def run_nanochat(config: RunConfig, steps: int, clone: str, device: str) -> Report:
    """Trains on the batches of `config`. In bf16 on a GPU, in fp32 on a CPU, by its own choice."""
    sys.path.insert(0, clone)
    from nanochat.flash_attention import USE_FA3
    from nanochat.gpt import GPT, GPTConfig

    training, on_gpu = config.training, device == "cuda"
    shape = {"n_layer": training.model.n_layers, "n_embd": training.model.d_model}
    shape |= {"n_head": training.model.n_heads, "n_kv_head": training.model.n_kv_heads}
    pattern = "SSSL" if USE_FA3 else "L"
    torch.manual_seed(training.seed)
    with torch.device("meta"):
        model = GPT(
            GPTConfig(training.seq_len, config.data.vocab_size, window_pattern=pattern, **shape)  # type: ignore[arg-type]
        )
    model.to_empty(device=device)
    model.init_weights()
    by_batch = math.sqrt(training.global_batch_tokens / laws.REFERENCE_BATCH)
    optimizer = model.setup_optimizer(
        unembedding_lr=laws.HEAD_LR * by_batch,
        embedding_lr=laws.EMBEDDING_LR * by_batch,
        matrix_lr=laws.MUON_LR * by_batch,
        scalar_lr=SCALAR_LR * by_batch,
        weight_decay=training.optimizer.weight_decay,
    )
    forward = torch.compile(model, dynamic=False) if on_gpu else model
    data = TrainingData(config.data, training, config.run_dir / "packing")
    batches, seconds = ahead(data.batch(step, 0, 1) for step in range(steps)), []
    for step in range(steps):
        started = time.perf_counter()
        windows = torch.from_numpy(next(batches)).to(device)
        for rows in windows.split(training.micro_batch_size):
            loss = forward(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
            (loss * len(rows) / len(windows)).backward()
        schedule(optimizer, step, steps, training.optimizer.weight_decay)
        optimizer.step()
        model.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    batches.close()
    [corpus] = config.data.corpora
    tokens = bin_path(Path(corpus.validation[0]))
    nats = validation_loss(model, tokens, training.seq_len, device, rows=training.micro_batch_size)
    predicted = tokens.stat().st_size // 2 - 1
    return {
        "step_seconds": statistics.median(seconds[WARMUP:] or seconds),
        "bits_per_byte": round(nats * predicted / math.log(2) / corpus.validation_bytes, 4),
        "window_pattern": pattern,
    }


def schedule(optimizer: torch.optim.Optimizer, step: int, steps: int, weight_decay: float) -> None:
    """The rates, and Muon's momentum and decay, of the step from 0. Its warmup is a tenth of the steps at
    most, which matters to runs on a CPU.
    """
    warmup, falling = min(WARMUP_STEPS, steps // 10), round(laws.DECAY_FRACTION * steps)
    left = min(1.0, (steps - step) / falling) if falling else 1.0
    rate = (step + 1) / warmup if step < warmup else left + (1 - left) * laws.MIN_LR_RATIO
    first, highest, last = MOMENTUM
    rising = step / MOMENTUM_STEPS
    momentum = first + rising * (highest - first) if rising < 1 else highest - (1 - left) * (highest - last)
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * rate
        if group["kind"] == "muon":
            group["momentum"] = momentum
            group["weight_decay"] = weight_decay * 0.5 * (1 + math.cos(math.pi * step / steps))


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("directory", type=Path)
    options.add_argument("--nanochat", required=True, help="where nanochat was cloned to")
    options.add_argument("--device", choices=SCALES, default="cuda")
    options.add_argument("--depth", type=int, default=12)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--text", nargs="+", help="files that a recipe's `files` can read")
    options.add_argument("--peer", type=int, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    directory = chosen.directory.absolute()
    if chosen.peer:
        config = load_run_config(directory / "config.yaml")
        print(json.dumps(run_nanochat(config, chosen.peer, chosen.nanochat, chosen.device)))
        return
    directory.mkdir(parents=True, exist_ok=True)
    found = compare(
        directory, chosen.device, chosen.nanochat, chosen.depth, chosen.minutes, chosen.text or samples()
    )
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
