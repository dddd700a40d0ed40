"""What saving, logging, reading and resuming cost training: how long a save of 100 M parameters holds up the steps, and the share of the rest.

python -m benchmarks.checkpointing
"""

import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.sidebyside import record
from trainer.config import RunConfig
from trainer.metrics import MetricsLog
from trainer.parallel.world import World
from trainer.recorder import Recorder
from trainer.report import Reporter
from trainer.rundir import RunDirectory
from trainer.saver import Saver
from trainer.session import Session
from trainer.shards import ShardWriter
from trainer.step import train_step

VOCAB = 8192
# 100 M parameters with the embeddings, in steps of few tokens: what a save holds up is then the largest share that it can be.
LARGE = {"model": {"n_layers": 12, "d_model": 768, "n_heads": 12, "n_kv_heads": 12, "d_ff": 2048}, "seq_len": 256, "micro_batch_size": 4}
SMALL = {"model": {"n_layers": 6, "d_model": 384, "n_heads": 6, "n_kv_heads": 6, "d_ff": 1024}, "seq_len": 512, "micro_batch_size": 4}
STEPS = 4


def settings(folder: Path, shape: dict[str, Any], batch_tokens: int) -> RunConfig:
    """A run over random tokens in `folder`."""
    with ShardWriter(folder / "random", np.dtype("uint16")) as writer:
        writer.add(np.random.default_rng(0).integers(4, VOCAB, 4_000_000))
    (folder / "tokenizer.json").write_text("{}")
    corpus = {"name": "random", "weight": 1, "train": [folder / "random"], "content": "random"}
    tokenizer = {"tokenizer": folder, "tokenizer_sha256": hashlib.sha256(b"{}").hexdigest()}
    data = {**tokenizer, "vocab_size": VOCAB, "bot_id": 2, "eot_id": 3, "corpora": [corpus]}
    often = {"checkpoint": {"every_tokens": batch_tokens}, "evaluation": {"every_tokens": batch_tokens}}
    training = {**shape, **often, "global_batch_tokens": batch_tokens, "max_tokens": 10**6 * batch_tokens}
    return RunConfig.model_validate({"run_dir": folder / "run", "data": data, "training": training})


def milliseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - started)


def held_up(folder: Path, shape: dict[str, Any], batch_tokens: int, saves: bool) -> dict[str, float]:
    """Medians over STEPS steps, the first left out, in milliseconds: the step, and what else the loop waits for."""
    session = Session.prepare(settings(folder, shape, batch_tokens), World(0, 1, torch.device("cpu")))
    directory = RunDirectory(folder / "run")
    directory.path.mkdir(exist_ok=True)
    recorder = Recorder(session, directory, Reporter(is_main=False))
    saver = Saver(session, directory, recorder)
    rows: list[dict[str, float]] = []
    for step in range(STEPS + 1):
        row = {"before_step": milliseconds(recorder.before_step)}
        started = time.perf_counter()
        windows = torch.from_numpy(session.data.batch(step, 0, 1))
        row["reading"] = 1000 * (time.perf_counter() - started)
        result = train_step(
            session.model, session.optimizers, windows, step, session.training, session.precision, None, session.world, session.loss_scale
        )
        seconds = time.perf_counter() - started
        session.step += 1
        row["step"] = 1000 * seconds
        row["logging"] = row.pop("before_step") + milliseconds(lambda result=result, seconds=seconds: recorder.step(result, False, seconds, 0.0))
        if saves:
            row["copying"] = milliseconds(lambda: saver.save(whole=True))
            row["writing"] = milliseconds(saver.wait)
        rows.append(row)
    saver.close()
    recorder.close()
    return {name: round(statistics.median(row[name] for row in rows[1:]), 2) for name in rows[0]}


def resuming(folder: Path) -> dict[str, dict[str, float]]:
    """Milliseconds to the first batch and to open the metrics, early and late in a run."""
    session = Session.prepare(settings(folder, SMALL, 8192), World(0, 1, torch.device("cpu")))
    line = '{"kind": "train", "step": 1, "loss": 3.0, "lr": 0.001, "grad_norm": 1.0, "tokens_per_second": 6000.0}\n'
    found = {}
    for step in (10, 1_000_000):
        path = folder / "metrics.jsonl"
        path.write_text(line * step)
        batch = statistics.median(milliseconds(lambda step=step: session.data.batch(step, 0, 1)) for _ in range(20))
        opened = milliseconds(lambda path=path, step=step: MetricsLog(path, folder / f"tensorboard-{step}", step, len(line) * step).close())
        found[f"step {step}"] = {"batch_ms": round(batch, 2), "metrics_ms": round(opened, 2)}
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large = held_up(folder, LARGE, 1024, saves=True)
        small = held_up(folder, SMALL, 8192, saves=False)
        report = {
            "saving 100 M parameters, steps of 1,024 tokens": large | {"copying / step": round(large["copying"] / large["step"], 4)},
            "10.6 M parameters, steps of 8,192 tokens": small | {"share": round((small["logging"] + small["reading"]) / small["step"], 5)},
            "resuming": resuming(folder),
        }
    record("checkpointing", report, ["torch", "safetensors"])


if __name__ == "__main__":
    main()
