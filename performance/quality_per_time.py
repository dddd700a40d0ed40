"""Bits per byte on held-out text after so many seconds, or so many tokens, of training: ours beside nanoGPT's
loop and the Trainer of `transformers`.

`python performance/quality_per_time.py DIRECTORY --seconds 240 --seeds 1 2 3` needs the sample corpora in
../shared/corpora, and transformers with accelerate for the peer. Books, encyclopedia and technical documents
go through our pipeline once (8k vocabulary, 2% of the documents held out), and all learn from these tokens.
Ours is `python -m trainer` with the model, batch, optimizer and schedule of the default recipe, compiled; the
Trainer has a Llama of the same size in batches of as many tokens; nanoGPT has the model and batch that its
README gives a CPU, and ours, compiled.

How many tokens each trains on in the seconds is found before: all go step by step in turns, and the median
step counts, without imports, compiling and evaluation. So what else the machine does while one of them trains
changes nothing. `--tokens` gives each as many tokens instead, and `--ablations` is ours with one piece left
out at a time. Each run is kept in DIRECTORY as it ends, so the same command goes on where it was stopped.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from harness.sidebyside import CORPORA, ROOT, Report, record
from harness.training_run import paced
from harness.turns import Turns, take_turns
from peers.train import FOREVER, Work, hugging_face, nanogpt, validation_loss
from torch import nn

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.overrides import merged
from pipeline.recipe.recipe import RECIPES, Recipe
from pipeline.steps.model.evaluate import compressed_bits_per_byte, held_out_text
from pipeline.steps.training import plan
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub, tokenize, tokenizer
from trainer.config import DataConfig, RunConfig
from trainer.data.shards import Shard
from trainer.model.precision import multiplies_bf16
from trainer.system import launch
from trainer.system.durable import read_json_lines

NAMES = ("books", "enwiki", "techdocs")
OURS, NANOGPT, NANOGPT_OUR_SIZE, HUGGING_FACE = (
    "groundwork",
    "nanoGPT",
    "nanoGPT, our size",
    "transformers Trainer",
)
PEERS = (NANOGPT, NANOGPT_OUR_SIZE, HUGGING_FACE)
WARMUP, TURNS = 3, 40
# What of our settings is changed to leave a piece out. A tied head cannot have a learning rate of its own.
EMBEDDING = {"pattern": "*embed_tokens*", "lr_multiplier": 25}
ABLATIONS: dict[str, dict[str, Any]] = {
    "Muon: AdamW for all": {"optimizer": {"kind": "adamw"}},
    "QK-norm": {"model": {"qk_norm": False}},
    "WSD: cosine to zero": {"schedule": {"kind": "cosine"}},
    "zero-initialized outputs": {"init": {"zero_output": False}},
    "small batch: four times as large": {"global_batch_tokens": 8192},
    "untied head": {
        "model": {"tie_embeddings": True},
        "optimizer": {"groups": [{**EMBEDDING, "lr_multiplier": 1.5}]},
    },
}


@dataclass(frozen=True)
class Job:
    """One training: who, its seed, and on how much."""

    name: str
    seed: int
    tokens: int

    def path(self, directory: Path) -> Path:
        kept = "".join(letter if letter.isalnum() else "_" for letter in self.name)
        return directory / "runs" / f"{kept}-{self.tokens}t-{self.seed}"


def prepare(directory: Path) -> RunConfig:
    """The three corpora as token shards, made once; `train.tokens` and `validation.tokens` are all of them
    end to end, as the peers read them.
    """
    recipe = _recipe()
    store, engine = Store(directory / "store"), LocalEngine()
    for corpus in recipe.corpora:
        collect(store, engine, corpus.name, corpus.source, recipe.raw.part_bytes)
        scrub(store, engine, corpus.name, recipe.scrub)
        judge(store, engine, corpus.name, recipe.quality)
    deduplicate(store, engine, recipe.corpus_names, recipe.dedup)
    tokenizer(
        store, engine, recipe.name, recipe.corpus_names, recipe.tokenizer, recipe.shards.validation_fraction
    )
    for name in recipe.corpus_names:
        tokenize(store, engine, name, recipe.shards)
    engine.close()
    config = plan.plan(store, recipe).config
    for split in ("train", "validation"):
        prefixes = [prefix for corpus in config.data.corpora for prefix in getattr(corpus, split)]
        np.concatenate([Shard(prefix).tokens for prefix in prefixes]).astype(np.uint16).tofile(
            directory / f"{split}.tokens"
        )
    return config


def _recipe() -> Recipe:
    """The default one, over these corpora."""
    corpora = [
        {"name": name, "source": {"kind": "files", "paths": [str(CORPORA / f"{name}.jsonl.zst")]}}
        for name in NAMES
    ]
    return load_recipe(
        RECIPES / "default.yaml", {"corpora": corpora, "shards": {"validation_fraction": 0.02}}
    )


class Judged(nn.Module):
    """A model of transformers that gives its loss as `validation_loss` asks for it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(tokens).logits.flatten(0, 1), targets.flatten())


def work_of(directory: Path, name: str, vocab_size: int) -> Work:
    """What a peer does in one step."""
    work = Work(
        str(directory / "train.tokens"), vocab_size, layers=4, width=256, heads=4, seq_len=256, rows=8
    )
    return replace(work, width=128, seq_len=64, rows=12) if name == NANOGPT else work


def fit(work: Work, name: str, seed: int, steps: int, before_step: Callable[[], object]) -> nn.Module:
    """A peer's training in this process."""
    if name == HUGGING_FACE:
        bf16 = multiplies_bf16(torch.device("cpu"))
        return Judged(hugging_face(work, before_step, bf16, compiled=True, steps=steps, seed=seed))
    return nanogpt(
        work, steps, before_step, compiled=True, lr=1e-3, warmup=min(100, steps // 10), beta2=0.99, seed=seed
    )


def peer(directory: Path, job: Job, vocab_size: int) -> Report:
    """A peer's training: `tokens`, and the `loss` in nats per held-out token."""
    work = work_of(directory, job.name, vocab_size)
    steps = job.tokens // (work.rows * work.seq_len)
    model = fit(work, job.name, job.seed, steps, lambda: None)
    return {
        "tokens": steps * work.rows * work.seq_len,
        "loss": validation_loss(model, directory / "validation.tokens", work.seq_len),
    }


def ours(directory: Path, job: Job, data: DataConfig) -> Report:
    """A run of `python -m trainer`: `tokens`, `bits_per_byte`."""
    path = job.path(directory)
    subprocess.run(
        launch.command(configured(path, data, job, ABLATIONS.get(job.name, {}))),
        check=True,
        cwd=ROOT,
        env=os.environ | launch.environment(),
    )
    shutil.rmtree(path / "checkpoints")
    last = read_json_lines(path / "metrics.jsonl")[-1]
    return {name: last[name] for name in ("tokens", "bits_per_byte")}


def configured(run_dir: Path, data: DataConfig, job: Job, changes: dict[str, Any]) -> Path:
    """A run over the whole steps in the job's tokens: the default recipe's settings with `changes`."""
    training = merged(_recipe().training.model_dump(mode="json"), changes)
    batch = training["global_batch_tokens"]
    tokens = job.tokens // batch * batch
    often = {
        "checkpoint": {"every_tokens": tokens},
        "evaluation": {"every_tokens": tokens, "micro_batch_size": 32},
        "samples": {"prompts": []},
    }
    length = {"max_tokens": tokens, "schedule": {"warmup_tokens": tokens // 50}}
    training = merged(training, {**often, **length, "seed": job.seed, "compile": "auto"})
    config = {"run_dir": str(run_dir), "data": data.model_dump(mode="json"), "training": training}
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / "given.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def tokens_per_second(directory: Path, data: DataConfig) -> dict[str, float]:
    """Of each contender, by its median step when all take turns."""
    kept = directory / "speeds.json"
    if not kept.exists():
        training, works = (
            _recipe().training,
            {name: work_of(directory, name, data.vocab_size) for name in PEERS},
        )
        config = configured(directory / "speed", data, Job(OURS, 1, training.max_tokens), {})
        contenders = {
            name: (_alone(directory, "--pace", name, str(data.vocab_size)), _environment()) for name in PEERS
        }
        contenders[OURS] = (_alone(directory, "--pace", OURS, str(config)), launch.environment())
        steps = take_turns(contenders, WARMUP, TURNS)
        tokens = {OURS: training.global_batch_tokens} | {
            name: work.rows * work.seq_len for name, work in works.items()
        }
        kept.write_text(json.dumps({name: tokens[name] / taken["seconds"] for name, taken in steps.items()}))
    speeds: dict[str, float] = json.loads(kept.read_text())
    return speeds


def pace(directory: Path, name: str, argument: str) -> None:
    """One contender's steps in turns with the others'."""
    if name == OURS:
        paced(Path(argument))
    else:
        fit(work_of(directory, name, int(argument)), name, 1, FOREVER, Turns().next)


def done(directory: Path, job: Job, data: DataConfig) -> Report:
    """What came of a job: read back when it is done already."""
    path = job.path(directory)
    kept = path.with_name(f"{path.name}.json")
    if not kept.exists():
        if job.name in PEERS:
            command = _alone(directory, "--one", json.dumps(asdict(job)), str(data.vocab_size))
            said = subprocess.run(
                command, check=True, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True
            ).stdout
            found = json.loads(said.splitlines()[-1])
            size, text_bytes = (
                (directory / "validation.tokens").stat().st_size // 2,
                sum(corpus.validation_bytes for corpus in data.corpora),
            )
            found["bits_per_byte"] = found.pop("loss") * (size - 1) / math.log(2) / text_bytes
        else:
            found = ours(directory, job, data)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(asdict(job) | {"trained": found}))
    found = json.loads(kept.read_text())["trained"]
    print(
        f"{job.name}, seed {job.seed}: {found['bits_per_byte']:.4f} bits per byte, {found['tokens']:,} "
        "tokens",
        flush=True,
    )
    return found


def _alone(directory: Path, *arguments: str) -> list[str]:
    return [sys.executable, __file__, str(directory), *arguments]


def _environment() -> dict[str, str]:
    return os.environ | {
        "OMP_NUM_THREADS": str(launch.physical_cores()),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'performance'}",
    }


def summary(runs: Iterable[Report]) -> Report:
    """Of one contender's runs, one for each seed."""
    runs = list(runs)
    bits = [run["bits_per_byte"] for run in runs]
    return {
        "bits_per_byte": round(statistics.mean(bits), 4),
        "by_seed": [round(found, 4) for found in bits],
        "tokens": round(statistics.mean(run["tokens"] for run in runs)),
    }


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("directory", type=Path)
    budget = options.add_mutually_exclusive_group()
    budget.add_argument("--seconds", type=float)
    budget.add_argument("--tokens", type=int)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument(
        "--ablations", action="store_true", help="ours with one piece left out, instead of the peers"
    )
    options.add_argument("--record", metavar="NAME", help="keep the report as results/NAME.json")
    options.add_argument("--one", nargs=2, metavar=("JOB", "VOCABULARY"), help=argparse.SUPPRESS)
    options.add_argument("--pace", nargs=2, metavar=("NAME", "ARGUMENT"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    directory = chosen.directory.absolute()
    if chosen.one:
        print(json.dumps(peer(directory, Job(**json.loads(chosen.one[0])), int(chosen.one[1]))))
    elif chosen.pace:
        pace(directory, *chosen.pace)
    elif chosen.seconds or chosen.tokens:
        compare(directory, chosen)
    else:
        options.error("say how much: --seconds 240, or --tokens 2457600")


def compare(directory: Path, chosen: argparse.Namespace) -> None:
    config = prepare(directory)
    names = [OURS, *(ABLATIONS if chosen.ablations else PEERS)]
    speeds = tokens_per_second(directory, config.data) if chosen.seconds else {}
    tokens = {
        name: int(chosen.seconds * speeds.get(name, speeds[OURS])) if chosen.seconds else chosen.tokens
        for name in names
    }
    runs: dict[str, list[Report]] = {name: [] for name in names}
    for seed in chosen.seeds:
        for name in names:
            runs[name].append(done(directory, Job(name, seed, tokens[name]), config.data))
    found = {name: summary(of) for name, of in runs.items()}
    for facts in found.values():
        facts["behind ours"] = round(facts["bits_per_byte"] - found[OURS]["bits_per_byte"], 4)
    held_out, compressors = compressed_bits_per_byte(held_out_text(config))
    report = {
        "budget": {"seconds": chosen.seconds} if chosen.seconds else {"tokens": chosen.tokens},
        "tokens_per_s": {name: round(speed) for name, speed in speeds.items()},
        "seeds": chosen.seeds,
        "training_tokens": (directory / "train.tokens").stat().st_size // 2,
        "held_out_bytes": held_out,
        "compressors": {name: round(bits, 4) for name, bits in compressors.items()},
        "left out" if chosen.ablations else "contenders": found,
    }
    if chosen.record:
        record(chosen.record, report, ("torch", "transformers", "accelerate"))
    else:
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
