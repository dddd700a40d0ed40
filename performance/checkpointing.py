"""What saving, logging, reading and resuming cost training: how long a save of 100 M parameters holds up the
steps, and the share of the rest.

python performance/checkpointing.py
"""

import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from harness.sidebyside import record
from tokenizers import Tokenizer, models

from trainer.checkpoint import publish as store
from trainer.checkpoint.background import Staging
from trainer.config import RunConfig
from trainer.data.shard_writer import ShardWriter
from trainer.parallel.world import World
from trainer.run import loop, resume
from trainer.run.records.dagster_pipes import Reporter
from trainer.run.records.recorder import Recorder
from trainer.run.resolve import resolve
from trainer.run.session import Session, build_session
from trainer.system.prefetch import ahead
from trainer.system.run_directory import RunDirectory

VOCAB = 8192
# 100 M parameters with the embeddings, in steps of few tokens: what a save holds up is then the largest share
# that it can be.
LARGE = {
    "model": {
        "n_layers": 12,
        "d_model": 768,
        "n_heads": 12,
        "n_kv_heads": 12,
        "d_ff": 2048,
        "qk_norm": False,
    },
    "seq_len": 256,
    "micro_batch_size": 4,
}
SMALL = {
    "model": {"n_layers": 6, "d_model": 384, "n_heads": 6, "n_kv_heads": 6, "d_ff": 1024, "qk_norm": False},
    "seq_len": 512,
    "micro_batch_size": 4,
}
TINY = {
    "model": {"n_layers": 2, "d_model": 64, "n_heads": 2, "n_kv_heads": 2, "d_ff": 128, "qk_norm": False},
    "seq_len": 128,
    "micro_batch_size": 4,
}
MILLION = 1_000_000
# What the loop waits for, by the name that the report gives it.
WAITS = {
    "step": (Session, "take_step"),
    "logging before": (loop.Recorder, "before_step"),
    "weights": (Session, "weight_norm"),
    "logging": (loop.Recorder, "step"),
    "saving": (loop.Saver, "save"),
}


def settings(
    folder: Path, shape: dict[str, Any], batch_tokens: int, steps: int, save_every_steps: int
) -> RunConfig:
    """A run over random tokens in `folder`."""
    with ShardWriter(folder / "random", np.dtype("uint16")) as writer:
        writer.add(np.random.default_rng(0).integers(4, VOCAB, 4_000_000))
    vocabulary = Tokenizer(models.WordLevel({str(number): number for number in range(VOCAB)})).to_str()
    (folder / "tokenizer.json").write_text(vocabulary)
    corpus = {"name": "random", "weight": 1, "train": [folder / "random"], "content": "random"}
    sha256 = hashlib.sha256(vocabulary.encode()).hexdigest()
    tokenizer = {"tokenizer": folder, "tokenizer_sha256": sha256}
    data = {**tokenizer, "vocab_size": VOCAB, "bot_id": 2, "eot_id": 3, "corpora": [corpus]}
    tokens = steps * batch_tokens
    often = {
        "checkpoint": {"every_tokens": save_every_steps * batch_tokens, "keep_last": 1},
        "evaluation": {"every_tokens": tokens},
    }
    learning = {"optimizer": {"kind": "adamw"}, "schedule": {"kind": "cosine", "warmup_tokens": 0}}
    training = {**shape, **often, **learning, "global_batch_tokens": batch_tokens, "max_tokens": tokens}
    return RunConfig.model_validate({"run_dir": folder / "run", "data": data, "training": training})


def waits(
    shape: dict[str, Any], batch_tokens: int, steps: int, save_every_steps: int
) -> dict[str, list[float]]:
    """Milliseconds of each of WAITS in a run, call by call."""
    taken: dict[str, list[float]] = {name: [] for name in (*WAITS, "reading")}

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                taken[name].append(1000 * (time.perf_counter() - started))

        return measured

    def read_ahead(batches: Iterator[Any]) -> Generator[Any]:
        with closing(ahead(batches)) as coming:
            while True:
                yield timed("reading", next)(coming)

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for name, (owner, method) in WAITS.items():
            stack.enter_context(mock.patch.object(owner, method, timed(name, getattr(owner, method))))
        stack.enter_context(mock.patch.object(loop, "ahead", read_ahead))
        loop.run(settings(Path(folder), shape, batch_tokens, steps, save_every_steps))
    return taken


def saving() -> dict[str, Any]:
    """The last save is left out: nothing follows that it could hold up."""
    found = waits(LARGE, batch_tokens=1024, steps=9, save_every_steps=4)
    step, saves = statistics.median(found["step"][1:]), found["saving"][:-1]
    return {
        "step_ms": round(step),
        "save_ms": [round(save) for save in saves],
        "longest save / step": round(max(saves) / step, 3),
    }


def logging_and_reading() -> dict[str, Any]:
    found = waits(SMALL, batch_tokens=8192, steps=6, save_every_steps=6)
    medians = {
        name: statistics.median(found[name][1:])
        for name in ("step", "reading", "logging before", "weights", "logging")
    }
    share = sum(medians[name] for name in medians if name != "step") / medians["step"]
    return {f"{name}_ms": round(value, 2) for name, value in medians.items()} | {"share": round(share, 5)}


def resuming(step: int) -> float:
    """Milliseconds from a session at step 0 to its first batch after `step` steps of a small model, metrics
    opened; median of five.
    """
    world = World(0, 1, torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        config = settings(Path(folder), TINY, batch_tokens=512, steps=2 * MILLION, save_every_steps=1)
        directory = RunDirectory(config.run_dir)
        plan = resolve(config, world)
        saved = build_session(plan, world)
        line = '{"kind": "train", "step": 1, "loss": 3.0, "lr": 0.001, "grad_norm": 1.0}\n'
        saved.context.step = step
        directory.path.mkdir()
        directory.metrics.write_text(line * step)
        snapshot = saved.snapshot(Staging(), metrics_bytes=len(line) * step)
        store.publish(directory.checkpoint(step), snapshot.write)
        taken = []
        for _ in range(5):
            session = build_session(plan, world)
            started = time.perf_counter()
            resume.restore(session, resume.find(plan, directory.checkpoints))
            recorder = Recorder(session, directory, Reporter(is_main=False))
            session.plan.data.batch(session.step, 0, 1)
            taken.append(1000 * (time.perf_counter() - started))
            recorder.close()
    return round(statistics.median(taken), 1)


def main() -> None:
    report = {
        "saving 100 M parameters, steps of 1,024 tokens": saving(),
        "10.6 M parameters, steps of 8,192 tokens": logging_and_reading(),
        "resuming_ms": {f"after step {step:,}": resuming(step) for step in (10, MILLION)},
    }
    record("checkpointing", report, ["torch", "safetensors"])


if __name__ == "__main__":
    main()
