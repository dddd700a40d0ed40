"""Training speed on a CPU beside nanoGPT and the Trainer of `transformers`: tokens a second and peak memory,
all step by step in turns and with the full batch.

`python performance/train_cpu.py bf16` or `fp32` takes at most four minutes, and adds to the results of other
precisions and instruction sets that this machine has. It needs the sample corpora in ../shared/corpora, and
transformers with accelerate. 6 layers, width 384, 6 heads, 10.6 M parameters in blocks, vocabulary 8192,
tied, 16 x 512 tokens a step of the same text. Ours is what `python -m trainer` runs, with AdamW. Ours and the
Trainer are compiled and not compiled, with AVX2 only compiled. nanoGPT's train.py has no other precision than
fp32 on a CPU. The last contenders only multiply: the matrices of a step, without and with those of attention.
No trainer of this model can take fewer seconds in that precision. `step_ratio` is a contender's seconds over
ours compiled.

A machine with AVX2 only is imitated by ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
ATEN_CPU_CAPABILITY=avx2 before `python performance/train_cpu.py fp32`, and TORCHINDUCTOR_CACHE_DIR with an
empty folder: code that was compiled for AVX-512 gives infinite gradients there.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import torch
from harness import training_run
from harness.sidebyside import RESULTS, Report, machine, record, texts
from harness.turns import Turns, take_turns
from peers.train import FOREVER, Work, hugging_face, nanogpt

from pipeline.stages import bpe
from trainer.data.shards import bin_path
from trainer.system import launch

VOCAB, LAYERS, WIDTH, HEADS, SEQ_LEN, ROWS = 8192, 6, 384, 6, 512, 16
BLOCK = 128  # queries that attention multiplies at a time
WARMUP, TURNS = 2, {"bf16": 7, "fp32": 3}
NAMED = {"true": ", compiled", "false": ", not compiled"}
Contender = tuple[Sequence[str], Mapping[str, str]]


def prepare(directory: Path, rows: int = ROWS) -> tuple[Path, Work]:
    """The configuration of a run over real text, and the same tokens for the peers."""
    pieces = [
        text[at : at + 10_000] for text in texts(("enwiki", "books"), 4) for at in range(0, len(text), 10_000)
    ]
    tokens = FOREVER * rows * SEQ_LEN
    training = {
        "model": {
            "n_layers": LAYERS,
            "d_model": WIDTH,
            "n_heads": HEADS,
            "n_kv_heads": HEADS,
            "d_ff": WIDTH * 8 // 3,
            "tie_embeddings": True,
            "qk_norm": False,
        },
        "seq_len": SEQ_LEN,
        "global_batch_tokens": rows * SEQ_LEN,
        "micro_batch_size": rows,
        "max_tokens": tokens,
        "optimizer": {"kind": "adamw", "lr": 1e-3},
        "schedule": {"kind": "cosine", "warmup_tokens": 0},
        "checkpoint": {"every_tokens": tokens},
        "evaluation": {"every_tokens": tokens},
    }
    tokenizer = bpe.train([pa.array(pieces)], bpe.TokenizerParams(vocab_size=VOCAB))
    config = training_run.write(directory, tokenizer, pieces[1:], pieces[0], training)
    return config, Work(str(bin_path(directory / "train")), VOCAB, LAYERS, WIDTH, HEADS, SEQ_LEN, rows)


def command(*arguments: str, as_launched: bool = False) -> Contender:
    environment = {"OMP_NUM_THREADS": str(launch.physical_cores())}
    return (
        sys.executable,
        __file__,
        "--one",
        *arguments,
    ), launch.environment() if as_launched else environment


def contenders(precision: str, directory: Path) -> dict[str, Contender]:
    config, work = prepare(directory)
    found = {}
    # With AVX2 only, all of them would take longer than four minutes.
    settings = ("true",) if instructions() == "AVX2" else ("true", "false")
    for compiled in settings:
        overrides = (f"training.precision={precision}", f"training.compile={compiled}")
        found[f"groundwork{NAMED[compiled]}"] = command(
            "ours", str(config), *overrides, f"run_dir={directory}/run-{compiled}", as_launched=True
        )
    for compiled in settings:
        found[f"transformers Trainer{NAMED[compiled]}"] = command(
            "hugging-face", precision, compiled, work.to_json()
        )
    if precision == "fp32":
        found["nanoGPT, compiled"] = command("nanogpt", work.to_json())
    for name, which in (("matrix products alone", "linear"), ("matrix products and attention's", "all")):
        found[name] = command("products", precision, which, work.to_json(), as_launched=True)
    return found


def instructions() -> str:
    """AVX512 or AVX2: what PyTorch uses here."""
    return torch.backends.cpu.get_cpu_capability()


def measure(precision: str) -> Report:
    with tempfile.TemporaryDirectory() as directory:
        taken = take_turns(contenders(precision, Path(directory)), WARMUP, TURNS[precision])
    ours = next(iter(taken.values()))["seconds"]
    return {
        name: {
            "tokens_per_s": round(ROWS * SEQ_LEN / facts["seconds"]),
            "step_ratio": round(facts["seconds"] / ours, 2),
        }
        | facts
        for name, facts in taken.items()
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("precision", choices=TURNS, nargs="?")
    options.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        CONTENDERS[chosen.one[0]](*chosen.one[1:])
        return
    if not chosen.precision:
        options.error("which precision, bf16 or fp32?")
    path = RESULTS / "train_cpu.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    training = before.get("training", {}) if before.get("machine") == machine() else {}
    load = round(os.getloadavg()[0], 1)
    part = f"{chosen.precision}, {instructions()}"
    training[part] = {"load_before": load, "contenders": measure(chosen.precision)}
    record("train_cpu", {"rows": ROWS, "training": training}, ("torch", "transformers", "accelerate"))


def _nanogpt(work: str) -> None:
    nanogpt(Work.from_json(work), FOREVER, Turns().next, compiled=True, lr=6e-4, warmup=2000, beta2=0.95)


def _products(precision: str, which: str, work: str) -> None:
    """Each linear layer's product with its inputs, and in the backward pass those for the gradients of its
    inputs and of its weights. For `all`, those of attention, too.
    """
    sizes = Work.from_json(work)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    hidden = WIDTH * 8 // 3
    shapes = [*[(WIDTH, WIDTH)] * 4, (hidden, WIDTH), (hidden, WIDTH), (WIDTH, hidden)] * LAYERS + [
        (VOCAB, WIDTH)
    ]
    tokens = sizes.rows * SEQ_LEN
    features = {size: torch.randn(tokens, size, dtype=dtype) for size in (WIDTH, hidden, VOCAB)}
    weights = {shape: torch.randn(shape, dtype=dtype) for shape in shapes}
    heads = torch.randn(sizes.rows * HEADS, SEQ_LEN, WIDTH // HEADS, dtype=dtype)
    turns = Turns()
    while True:
        turns.next()
        for outputs, inputs in shapes:
            features[inputs] @ weights[outputs, inputs].T
            features[outputs] @ weights[outputs, inputs]
            features[outputs].T @ features[inputs]
        for _ in range(LAYERS if which == "all" else 0):
            _attention_products(heads)


def _attention_products(heads: torch.Tensor) -> None:
    """The products of attention, each block of queries with the keys up to its own: of queries and keys, and
    of probabilities and values; then for the gradients of probabilities, queries, keys and values. `heads` of
    shape (rows x heads, seq_len, head_dim) stands for all of them.
    """
    for first in range(0, SEQ_LEN, BLOCK):
        queries, keys = heads[:, first : first + BLOCK], heads[:, : first + BLOCK]
        probabilities = queries @ keys.mT
        for _ in range(2):  # the results, and the gradients of queries
            probabilities @ keys
        for _ in range(2):  # the gradients of keys and of values
            probabilities.mT @ queries
        queries @ keys.mT  # the gradients of probabilities


def _hugging_face(precision: str, compiled: str, work: str) -> None:
    hugging_face(Work.from_json(work), Turns().next, bf16=precision == "bf16", compiled=compiled == "true")


CONTENDERS: dict[str, Callable[..., None]] = {
    "ours": lambda config, *overrides: training_run.paced(Path(config), *overrides),
    "nanogpt": _nanogpt,
    "products": _products,
    "hugging-face": _hugging_face,
}

if __name__ == "__main__":
    main()
