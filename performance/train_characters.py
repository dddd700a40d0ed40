"""Characters of tinyshakespeare at nanoGPT's small CPU setting: validation loss, and seconds from start to
end, both at the same time on a core each.

Needs ../shared/corpora/tinyshakespeare.txt. 4 layers, 4 heads, width 128, context 64, batch 12; 2000 steps,
ours 1000. nanoGPT as its README says for a CPU: fp32, not compiled, AdamW, its learning rate. Ours is `python
-m trainer` with the optimizer and schedule of the default recipe. Both are judged on the whole last tenth of
the text, in windows of 64 that do not overlap, each prediction counted once; the seconds are those of the
whole process, imports and that evaluation included, for ours also its checks and its checkpoint. Each repeat
swaps the cores.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from harness import training_run
from harness.sidebyside import CORPORA, ROOT, record
from peers.train import Work, nanogpt, validation_loss
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from pipeline.stages import bpe
from trainer.system import launch
from trainer.system.durable import read_json_lines

LAYERS, HEADS, WIDTH, SEQ_LEN, ROWS = 4, 4, 128, 64, 12
TRAINING: dict[str, Any] = {
    "model": {
        "n_layers": LAYERS,
        "d_model": WIDTH,
        "n_heads": HEADS,
        "n_kv_heads": HEADS,
        "d_ff": 344,
        "qk_norm": True,
    },
    "seq_len": SEQ_LEN,
    "global_batch_tokens": SEQ_LEN * ROWS,
    "micro_batch_size": ROWS,
    "optimizer": {
        "kind": "muon",
        "muon_lr": 0.01,
        "lr": 0.002,
        "weight_decay": 0,
        "groups": [
            {"pattern": "*embed_tokens*", "lr_multiplier": 25},
            {"pattern": "lm_head*", "lr_multiplier": 1.5},
        ],
    },
    "log_every_steps": 10,
}


def characters(known: Sequence[str]) -> Tokenizer:
    """One token for each of these characters."""
    vocabulary = {token: number for number, token in enumerate([*bpe.SPECIALS.values(), *known])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, bpe.SPECIALS["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def prepare(directory: Path, train: str, validation: str, steps: int) -> Path:
    """The configuration of our run, and the characters as the peer reads them: `train.chars` and
    `validation.chars`, one uint16 each.
    """
    tokens = steps * SEQ_LEN * ROWS
    training = {
        **TRAINING,
        "max_tokens": tokens,
        "schedule": {"kind": "wsd", "warmup_tokens": tokens // 50, "decay_fraction": 0.6, "min_lr_ratio": 0},
        "checkpoint": {"every_tokens": tokens},
        "evaluation": {"every_tokens": tokens, "micro_batch_size": 64},
    }
    known = sorted(set(train + validation))
    numbers = {character: number for number, character in enumerate(known)}
    for name, text in (("train", train), ("validation", validation)):
        np.array([numbers[character] for character in text], np.uint16).tofile(directory / f"{name}.chars")
    return training_run.write(directory, characters(known), [train], validation, training)


def peer(directory: Path, vocab_size: int, steps: int) -> None:
    """nanoGPT's command in a process of its own; prints its loss."""
    work = Work(str(directory / "train.chars"), vocab_size, LAYERS, WIDTH, HEADS, SEQ_LEN, ROWS)
    model = nanogpt(work, steps, lambda: None, compiled=False, lr=1e-3, warmup=100, beta2=0.99)
    print(validation_loss(model, directory / "validation.chars", SEQ_LEN))


def timed(command: Sequence[str], core: int) -> tuple[float, str]:
    """Seconds of a whole process that has one core, and what it printed."""
    started = time.perf_counter()
    environment = (
        os.environ | launch.environment(1) | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'performance'}"}
    )
    ended = subprocess.run(
        ["taskset", "-c", str(core), *command],
        check=True,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    return time.perf_counter() - started, ended.stdout


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=2000, help="nanoGPT's")
    options.add_argument(
        "--our-steps",
        type=int,
        default=1000,
        help="a step with Muon takes nearly twice as long, and learns more",
    )
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--peer", nargs=2, metavar=("DIRECTORY", "VOCABULARY"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.peer:
        peer(Path(chosen.peer[0]), int(chosen.peer[1]), chosen.steps)
        return
    text = (CORPORA / "tinyshakespeare.txt").read_text()
    split = len(text) * 9 // 10
    seconds: dict[str, list[float]] = {"groundwork": [], "nanoGPT": []}
    losses: dict[str, float] = {}
    cores = sorted(os.sched_getaffinity(0))[:2]
    for _ in range(chosen.repeats):
        with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as both:
            directory = Path(name)
            ours = launch.command(prepare(directory, text[:split], text[split:], chosen.our_steps))
            theirs = [
                sys.executable,
                __file__,
                "--steps",
                str(chosen.steps),
                "--peer",
                name,
                str(len(set(text))),
            ]
            (our_seconds, _), (their_seconds, said) = both.map(timed, (ours, theirs), cores)
            evaluations = [
                found
                for found in read_json_lines(directory / "run" / "metrics.jsonl")
                if found["kind"] == "evaluation"
            ]
        seconds["groundwork"].append(our_seconds)
        seconds["nanoGPT"].append(their_seconds)
        losses = {"groundwork": evaluations[-1]["loss"], "nanoGPT": float(said.splitlines()[-1])}
        cores.reverse()
    found = {
        name: {"seconds": round(statistics.median(runs), 1), "validation_loss": round(losses[name], 4)}
        for name, runs in seconds.items()
    }
    record(
        "train_characters",
        {
            "steps": {"groundwork": chosen.our_steps, "nanoGPT": chosen.steps},
            "repeats": chosen.repeats,
            "training": found,
        },
        ("torch",),
    )


if __name__ == "__main__":
    main()
