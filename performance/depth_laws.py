"""Whether the laws behind `model: {depth: N}` hold in small runs: the learning rates, the batch and the
weight decay that they give, against multiples of each.

python performance/depth_laws.py DIRECTORY [--depths 2 3 4] [--seeds 1 2] [--rates 1 2 4 8] [--batches 0.25 4]
    [--decays 0 0.25 4] [--record]

Needs the sample corpora in ../shared/corpora. Every run has one thread and goes through `python -m trainer`.
Length and vocabulary are small, so that a run takes less than a minute on a core; the laws were tuned at
depth 12. Each run is kept in DIRECTORY as it ends, so the same command goes on where it was stopped.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from harness import training_run
from harness.sidebyside import ROOT, Report, record, texts

from pipeline.stages import bpe
from trainer.config import depth as laws
from trainer.system import launch
from trainer.system.durable import read_json_lines

CORPORA, MEGABYTES, VOCAB = ("books", "enwiki", "techdocs"), 12, 2048
SEQ_LEN, ROWS, BATCH, TOKENS = 256, 8, 8192, 2**19
HELD_OUT = 100  # one in so many texts


@dataclass(frozen=True)
class Trial:
    """Multiples of what the laws give. With another batch the rates follow it by the law."""

    depth: int
    seed: int
    rate: float = 1
    batch: float = 1
    decay: float = 1

    @property
    def name(self) -> str:
        return f"d{self.depth}-rate{self.rate:g}-batch{self.batch:g}-decay{self.decay:g}-{self.seed}"

    def training(self) -> dict[str, Any]:
        batch = int(BATCH * self.batch)
        optimizer = laws.optimizer(self.depth, batch, tied=False)
        for setting in ("lr", "muon_lr"):
            optimizer[setting] *= self.rate
        # AdamW's decay of embedding and head stays: it is small, and not what the law sets.
        optimizer["weight_decay"] *= self.decay
        return {
            "model": {"depth": self.depth},
            "seq_len": SEQ_LEN,
            "micro_batch_size": ROWS,
            "global_batch_tokens": batch,
            "max_tokens": TOKENS,
            "optimizer": optimizer,
            "seed": self.seed,
            "threads": 1,
            "compile": False,
            "checkpoint": {"every_tokens": TOKENS},
            "evaluation": {"every_tokens": TOKENS, "micro_batch_size": 32},
            "log_every_steps": 16,
        }


def prepare(directory: Path) -> Path:
    """The tokens and a configuration to copy, made once."""
    path = directory / "config.yaml"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        found = texts(CORPORA, MEGABYTES)
        tokenizer = bpe.train([pa.array(found)], bpe.TokenizerParams(vocab_size=VOCAB))
        train = [text for number, text in enumerate(found) if number % HELD_OUT]
        training_run.write(directory, tokenizer, train, "\n".join(found[::HELD_OUT]), {})
    return path


def loss(directory: Path, given: Path, trial: Trial) -> float:
    """Nats per held-out token after the run; read back if the run is done already."""
    run = directory / "runs" / trial.name
    kept = run.with_name(f"{trial.name}.json")  # with_suffix would cut 0.25
    if not kept.exists():
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir(parents=True)
        values = yaml.safe_load(given.read_text()) | {"run_dir": str(run), "training": trial.training()}
        (run / "given.yaml").write_text(yaml.safe_dump(values))
        command = launch.command(run / "given.yaml")
        environment = os.environ | launch.environment(1)
        subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True)
        last = [line for line in read_json_lines(run / "metrics.jsonl") if line["kind"] == "evaluation"][-1]
        kept.write_text(json.dumps(last["loss"]))
        shutil.rmtree(run)
    found: float = json.loads(kept.read_text())
    return found


def trials(chosen: argparse.Namespace) -> list[Trial]:
    """The rates at every depth; batch and decay at the middle one."""
    middle = chosen.depths[len(chosen.depths) // 2]
    settings = [{"depth": depth, "rate": rate} for depth in chosen.depths for rate in chosen.rates]
    settings += [{"depth": middle, "batch": batch} for batch in chosen.batches]
    settings += [{"depth": middle, "decay": decay} for decay in chosen.decays]
    return [Trial(seed=seed, **setting) for seed in chosen.seeds for setting in settings]


def summary(found: dict[Trial, float]) -> Report:
    """Mean loss over the seeds, by depth and what was multiplied by how much."""
    by_setting: dict[str, dict[str, list[float]]] = {}
    for trial, value in found.items():
        changed = [name for name in ("rate", "batch", "decay") if getattr(trial, name) != 1]
        for name in changed or ("rate", "batch", "decay"):
            row = by_setting.setdefault(f"depth {trial.depth}, {name}", {})
            row.setdefault(f"{getattr(trial, name):g}", []).append(value)
    return {
        setting: {multiple: round(statistics.mean(losses), 4) for multiple, losses in sorted(row.items())}
        for setting, row in by_setting.items()
        if len(row) > 1
    }


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("directory", type=Path)
    options.add_argument("--depths", type=int, nargs="+", default=[2, 3, 4])
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    options.add_argument("--rates", type=float, nargs="+", default=[1, 2, 4, 8])
    options.add_argument("--batches", type=float, nargs="*", default=[0.25, 4])
    options.add_argument("--decays", type=float, nargs="*", default=[0, 0.25, 4])
    options.add_argument("--record", action="store_true", help="keep the report in results/")
    chosen = options.parse_args()
    directory = chosen.directory.absolute()
    given, found = prepare(directory), {}
    for trial in trials(chosen):
        found[trial] = loss(directory, given, trial)
        print(f"{trial.name}: {found[trial]:.4f}", flush=True)
    report = {"tokens": TOKENS, "tokens_a_step": BATCH, "vocabulary": VOCAB, "seeds": chosen.seeds}
    report["nats_per_held_out_token"] = summary(found)
    if chosen.record:
        record("depth_laws", report, ("torch",))
    else:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
