"""Training on a GPU beside nanoGPT, nanochat, torchtitan and the Trainer of `transformers`: tokens per
second, MFU against the matrix products measured here, peak memory.

python performance/train_gpu.py [--sizes 124m 1b 3b] [--seq-lens 1024 4096] [--nanochat CLONE]

Random tokens in documents; the same batch, micro-batch and precision (bf16 over fp32 weights), compiled, each
in a process of its own, one after the other. The model is the same Llama; nanoGPT's is a GPT-2 and nanochat's
a model of its own, each with as many parameters in blocks. A contender that does not fit or is not installed
is written down as such. torchtitan 0.3 needs a newer PyTorch than 2.11.
"""

import argparse
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from harness.sidebyside import RESULTS, ROOT, importable, record
from matplotlib import pyplot
from peers import repositories
from peers.train import FOREVER, Work, hugging_face, nanogpt
from tokenizers import Tokenizer
from tokenizers.models import BPE

from trainer.config import ModelConfig
from trainer.data.shard_writer import ShardWriter
from trainer.data.shards import bin_path
from trainer.run.fit.hardware import peak_flops, peak_memory
from trainer.system import launch

SIZES = {
    "tiny": {"n_layers": 2, "d_model": 64, "n_heads": 2},  # for a CPU, which tries the way
    "124m": {"n_layers": 12, "d_model": 768, "n_heads": 12},
    "1b": {"n_layers": 24, "d_model": 1920, "n_heads": 15},
    "3b": {"n_layers": 28, "d_model": 3072, "n_heads": 24},
}
DOCUMENT_TOKENS = 600  # on average, of lengths between none and twice as many


@dataclass(frozen=True)
class Scale:
    """`batch`: tokens a step. The first `warmup` of the `steps` are not timed."""

    vocab: int
    batch: int
    steps: int
    warmup: int


SCALES = {"cuda": Scale(50_304, 65_536, 30, 10), "cpu": Scale(512, 512, 6, 2)}
MISSING = {
    "nanochat": "nanochat is a repository: git clone https://github.com/karpathy/nanochat, then give its "
    "path with --nanochat",
    "torchtitan": f"pip install torchtitan=={repositories.TORCHTITAN_TRIED}",
    "transformers Trainer": "pip install transformers accelerate",
}
OURS = ("groundwork", "groundwork, documents apart", "groundwork, not compiled")
PEERS = ("nanoGPT", "nanochat", "torchtitan", "torchtitan, documents apart", "transformers Trainer")


def matmul_flops(device: str) -> float:
    """FLOP/s of a bf16 product of 8,192 x 8,192 matrices, the best of several; on a CPU of smaller ones."""
    if device == "cpu":
        return peak_flops(torch.device("cpu"), "fp32")
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


def prepare(
    folder: Path, size: str, seq_len: int, rows: int, device: str = "cuda", contender: str = "groundwork"
) -> tuple[Path, Work]:
    """The configuration of our run, and the same work for the peer."""
    scale, generator = SCALES[device], np.random.default_rng(0)
    with ShardWriter(folder / "random", np.dtype("uint16")) as writer:
        left = 40 * scale.batch
        while left > 0:
            length = min(left, int(generator.integers(2, 2 * DOCUMENT_TOKENS)))
            writer.add(np.concatenate([[repositories.BOT], generator.integers(4, scale.vocab, length - 1)]))
            left -= length
    tokenizer = folder / "tokenizer.json"
    Tokenizer(BPE({str(number): number for number in range(scale.vocab)}, [])).save(str(tokenizer))
    corpus = {"name": "random", "weight": 1, "train": [str(folder / "random")], "content": "random"}
    data = {
        "tokenizer": str(folder),
        "tokenizer_sha256": hashlib.sha256(tokenizer.read_bytes()).hexdigest(),
        "vocab_size": scale.vocab,
        "bot_id": repositories.BOT,
        "eot_id": 3,
        "corpora": [corpus],
    }
    once = {"every_tokens": scale.steps * scale.batch}
    training = {
        "model": shape(size),
        "seq_len": seq_len,
        "global_batch_tokens": scale.batch,
        "micro_batch_size": rows,
        "max_tokens": scale.steps * scale.batch,
        "precision": "bf16" if device == "cuda" else "fp32",
        "compile": device == "cuda" and "not compiled" not in contender,
        "document_masking": "documents apart" in contender,
        "optimizer": {"kind": "adamw", "lr": 1e-3},
        "schedule": {"kind": "cosine", "warmup_tokens": 0},
        "checkpoint": once,
        "evaluation": once,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"run_dir": str(folder / "run"), "data": data, "training": training}))
    given = SIZES[size]
    work = Work(
        str(bin_path(folder / "random")),
        scale.vocab,
        given["n_layers"],
        given["d_model"],
        given["n_heads"],
        seq_len,
        rows,
    )
    return path, work


def ours(config: Path, device: str) -> dict[str, float]:
    subprocess.run(
        launch.command(config),
        cwd=ROOT,
        env=os.environ | launch.environment(),
        check=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    records = [json.loads(line) for line in (config.parent / "run/metrics.jsonl").read_text().splitlines()]
    steps = [found for found in records if found["kind"] == "train" and found["step"] > SCALES[device].warmup]
    speed = statistics.median(step["tokens_per_second"] for step in steps)
    return {"tokens_per_s": round(speed), "peak_gb": round(steps[-1]["memory_mb"] / 1000, 2)}


def peer(name: str, work: Work, device: str, clone: str | None) -> dict[str, float]:
    command = [sys.executable, __file__, "--peer", name, work.to_json(), device, clone or ""]
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def run_peer(name: str, work: Work, device: str, clone: str) -> None:
    """In a process of its own: steps until enough are timed."""
    times: list[float] = []
    scale, on_gpu = SCALES[device], device == "cuda"

    def before_step() -> None:
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter())
        if len(times) > scale.steps:
            timed = times[scale.warmup :]
            seconds = statistics.median(after - before for before, after in itertools.pairwise(timed))
            peak = peak_memory(torch.device(device)) / 1e9
            print(
                json.dumps({"tokens_per_s": round(scale.batch / seconds), "peak_gb": round(peak, 2)}),
                flush=True,
            )
            os._exit(0)

    accumulate = scale.batch // (work.rows * work.seq_len)
    if name == "nanoGPT":
        torch.backends.cuda.matmul.allow_tf32 = True
        rates: dict[str, Any] = {"lr": 6e-4, "warmup": 2000, "beta2": 0.95}
        nanogpt(work, FOREVER, before_step, on_gpu, **rates, device=device, accumulate=accumulate)
    elif name == "nanochat":
        repositories.nanochat(work, before_step, clone, device, accumulate, compiled=on_gpu)
    elif name.startswith("torchtitan"):
        apart = "documents apart" in name
        repositories.torchtitan(work, before_step, device, accumulate, apart, compiled=on_gpu)
    else:
        hugging_face(
            work, before_step, bf16=on_gpu, compiled=on_gpu, on_cpu=not on_gpu, accumulate=accumulate
        )


def missing(name: str, clone: str | None) -> str | None:
    """How to get a contender that is not here."""
    if name == "nanochat":
        return None if clone and (Path(clone) / "nanochat/gpt.py").is_file() else MISSING[name]
    package = {"torchtitan": "torchtitan", "transformers": "transformers"}.get(name.split(",")[0].split()[0])
    return None if package is None or importable(package) else MISSING[name.split(",")[0]]


def measured(
    name: str, folder: Path, size: str, seq_len: int, rows: int, device: str, clone: str | None, peak: float
) -> dict[str, Any]:
    """Tokens per second and peak memory of one contender, and its share of the `peak` rate of products by two
    counts of operations: `mfu` has attention in full, as PaLM, nanoGPT and torchtitan count, `mfu_causal`
    what the causal order leaves, as Megatron-LM does.
    """
    if said := missing(name, clone):
        return {"skipped": said}
    config, work = prepare(folder, size, seq_len, rows, device, name)
    try:
        found = ours(config, device) if name in OURS else peer(name, work, device, clone)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines()
        return {"failed": lines[-1] if lines else f"exit status {error.returncode}"}
    model = ModelConfig.model_validate(shape(size))
    for key, causal in (("mfu", False), ("mfu_causal", True)):
        operations = model.flops_per_token(SCALES[device].vocab, seq_len, causal=causal)
        found[key] = round(found["tokens_per_s"] * operations / peak, 3)
    return found


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
    options.add_argument("--sizes", nargs="+", default=["124m", "1b", "3b"], choices=SIZES)
    options.add_argument("--seq-lens", nargs="+", type=int, default=[1024, 4096, 8192])
    options.add_argument("--rows-of-tokens", type=int, default=16_384, help="tokens in a micro-batch")
    options.add_argument("--nanochat", help="where nanochat was cloned to")
    options.add_argument("--peer", nargs=4, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.peer:
        name, work, device, clone = chosen.peer
        run_peer(name, Work.from_json(work), device, clone)
        return
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device: nothing was measured")
    peak, report = matmul_flops("cuda"), dict[str, dict[str, Any]]()
    for size in chosen.sizes:
        for seq_len in chosen.seq_lens:
            rows, found = max(1, chosen.rows_of_tokens // seq_len), {}
            for name in (*OURS, *PEERS):
                with tempfile.TemporaryDirectory() as folder:
                    found[name] = measured(
                        name, Path(folder), size, seq_len, rows, "cuda", chosen.nanochat, peak
                    )
            report[f"{size}, {seq_len} tokens"] = found
            print(size, seq_len, json.dumps(found), flush=True)
    draw(report, RESULTS / "train_gpu.png")
    device = {"device": torch.cuda.get_device_name(), "measured_matmul_tflops": round(peak / 1e12, 1)}
    record("train_gpu", device | report, ("torch", "transformers", "accelerate", "torchtitan"))


if __name__ == "__main__":
    main()
