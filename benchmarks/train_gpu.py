"""Training on a GPU beside nanoGPT and the Trainer of `transformers`: tokens per second, MFU against the
matrix products measured here, peak memory.

python benchmarks/train_gpu.py [--sizes 124m 1b 3b] [--seq-lens 1024 4096]

Random tokens; the same batch, micro-batch and precision (bf16 over fp32 weights), compiled, each in a process
of its own, one after the other. The model is the same Llama, nanoGPT's a GPT-2 of as many parameters in
blocks. A contender that does not fit or is not installed is written down as such. It has not been run on a
GPU yet: all but the timing was tried on a CPU, with small sizes.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from harness.sidebyside import RESULTS, ROOT, record
from matplotlib import pyplot
from peers.train import FOREVER, Work, hugging_face, nanogpt
from tokenizers import Tokenizer
from tokenizers.models import BPE

from trainer.config import ModelConfig
from trainer.data.shards import ShardWriter, bin_path
from trainer.system import launch

VOCAB = 50_304
SIZES = {
    "124m": {"n_layers": 12, "d_model": 768, "n_heads": 12},
    "1b": {"n_layers": 24, "d_model": 1920, "n_heads": 15},
    "3b": {"n_layers": 28, "d_model": 3072, "n_heads": 24},
}
TOKENS_A_STEP, STEPS, WARMUP = 65_536, 30, 10


def matmul_flops() -> float:
    """FLOP/s of a bf16 product of 8,192 x 8,192 matrices, the best of several."""
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    seconds = []
    for _ in range(20):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        matrix @ matrix
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1000)
    return 2 * 8192**3 / min(seconds)


def shape(size: str) -> dict[str, Any]:
    given = SIZES[size]
    blocks = {"n_kv_heads": given["n_heads"], "d_ff": given["d_model"] * 8 // 3, "qk_norm": False}
    return given | blocks | {"tie_embeddings": True}


def prepare(folder: Path, size: str, seq_len: int, rows: int) -> tuple[Path, Work]:
    """The configuration of our run, and the same work for the peer."""
    with ShardWriter(folder / "random", np.dtype("uint16")) as writer:
        writer.add(np.random.default_rng(0).integers(4, VOCAB, 40 * TOKENS_A_STEP))
    tokenizer = folder / "tokenizer.json"
    Tokenizer(BPE({str(number): number for number in range(VOCAB)}, [])).save(str(tokenizer))
    corpus = {"name": "random", "weight": 1, "train": [str(folder / "random")], "content": "random"}
    data = {
        "tokenizer": str(folder),
        "tokenizer_sha256": hashlib.sha256(tokenizer.read_bytes()).hexdigest(),
        "vocab_size": VOCAB,
        "bot_id": 2,
        "eot_id": 3,
        "corpora": [corpus],
    }
    once = {"every_tokens": STEPS * TOKENS_A_STEP}
    training = {
        "model": shape(size),
        "seq_len": seq_len,
        "global_batch_tokens": TOKENS_A_STEP,
        "micro_batch_size": rows,
        "max_tokens": STEPS * TOKENS_A_STEP,
        "precision": "bf16",
        "compile": True,
        "document_masking": False,
        "optimizer": {"kind": "adamw", "lr": 1e-3},
        "schedule": {"kind": "cosine", "warmup_tokens": 0},
        "checkpoint": once | {"model_only": True},
        "evaluation": once,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"run_dir": str(folder / "run"), "data": data, "training": training}))
    given = SIZES[size]
    work = Work(
        str(bin_path(folder / "random")),
        VOCAB,
        given["n_layers"],
        given["d_model"],
        given["n_heads"],
        seq_len,
        rows,
    )
    return path, work


def ours(config: Path) -> dict[str, float]:
    subprocess.run(
        launch.command(config),
        cwd=ROOT,
        env=os.environ | launch.environment(),
        check=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    records = [json.loads(line) for line in (config.parent / "run/metrics.jsonl").read_text().splitlines()]
    steps = [found for found in records if found["kind"] == "train" and found["step"] > WARMUP]
    speed = statistics.median(step["tokens_per_second"] for step in steps)
    return {"tokens_per_s": round(speed), "peak_gb": round(steps[-1]["memory_mb"] / 1000, 2)}


def peer(name: str, work: Work) -> dict[str, float]:
    command = [sys.executable, __file__, "--peer", name, work.to_json()]
    path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
    ended = subprocess.run(command, env=os.environ | path, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def run_peer(name: str, work: Work) -> None:
    """In a process of its own: steps until enough are timed."""
    times: list[float] = []

    def before_step() -> None:
        torch.cuda.synchronize()
        times.append(time.perf_counter())
        if len(times) > STEPS:
            seconds = statistics.median(
                after - before for before, after in zip(times[WARMUP:], times[WARMUP + 1 :], strict=False)
            )
            peak = torch.cuda.max_memory_allocated() / 1e9
            print(
                json.dumps({"tokens_per_s": round(TOKENS_A_STEP / seconds), "peak_gb": round(peak, 2)}),
                flush=True,
            )
            os._exit(0)

    accumulate = TOKENS_A_STEP // (work.rows * work.seq_len)
    if name == "nanogpt":
        torch.backends.cuda.matmul.allow_tf32 = True
        nanogpt(
            work,
            FOREVER,
            before_step,
            compiled=True,
            lr=6e-4,
            warmup=2000,
            beta2=0.95,
            device="cuda",
            accumulate=accumulate,
        )
    else:
        hugging_face(work, before_step, bf16=True, compiled=True, on_cpu=False, accumulate=accumulate)


def attempt(contender: Any, flops_per_token: int, peak: float, *arguments: Any) -> dict[str, Any]:
    try:
        found = contender(*arguments)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        return {"failed": said[-1] if said else f"exit status {error.returncode}"}
    return found | {"mfu": round(found["tokens_per_s"] * flops_per_token / peak, 3)}


def draw(report: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """MFU of each contender, for each size and length that was measured."""
    figure, axes = pyplot.subplots(figsize=(4 + len(report), 4))
    names = list(dict.fromkeys(name for found in report.values() for name in found))
    for number, name in enumerate(names):
        shares = [found[name].get("mfu", 0) for found in report.values()]
        axes.bar(
            [at + number / (len(names) + 1) for at in range(len(report))],
            shares,
            1 / (len(names) + 1),
            label=name,
        )
    axes.set_xticks(
        [at + (len(names) - 1) / (len(names) + 1) / 2 for at in range(len(report))], report, fontsize=8
    )
    axes.set_ylabel("share of the measured bf16 rate")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    options.add_argument("--seq-lens", nargs="+", type=int, default=[1024, 4096, 8192])
    options.add_argument("--rows-of-tokens", type=int, default=16_384, help="tokens in a micro-batch")
    options.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.peer:
        run_peer(chosen.peer[0], Work.from_json(chosen.peer[1]))
        return
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device: nothing was measured")
    peak = matmul_flops()
    report: dict[str, dict[str, Any]] = {}
    for size in chosen.sizes:
        for seq_len in chosen.seq_lens:
            with tempfile.TemporaryDirectory() as folder:
                config, work = prepare(Path(folder), size, seq_len, max(1, chosen.rows_of_tokens // seq_len))
                flops = ModelConfig.model_validate(shape(size)).flops_per_token(VOCAB, seq_len)
                found = {
                    "groundwork": attempt(ours, flops, peak, config),
                    "nanoGPT": attempt(peer, flops, peak, "nanogpt", work),
                    "transformers Trainer": attempt(peer, flops, peak, "transformers", work),
                }
            report[f"{size}, {seq_len} tokens"] = found
            print(size, seq_len, json.dumps(found), flush=True)
    draw(report, RESULTS / "train_gpu.png")
    device = {"device": torch.cuda.get_device_name(), "measured_matmul_tflops": round(peak / 1e12, 1)}
    record("train_gpu", device | report, ("torch", "transformers", "accelerate"))


if __name__ == "__main__":
    main()
