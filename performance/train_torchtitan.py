"""The loss over 1,000 steps beside torchtitan's, from the same first weights, on the same batches, in fp32.

`python performance/train_torchtitan.py` takes about five minutes on two cores. It needs the sample corpora in
../shared/corpora and, without what else its package asks for, `pip install --no-deps torchtitan==0.3.0
spmd_types tyro`. 4 layers, width 128, 4 heads, vocabulary 4096, 4 x 256 tokens a step. The first weights are
ours, drawn as torchtitan draws them, and read by its adapter for Hugging Face's format. AdamW with its betas
and with decay on every parameter, clipping at 1, 100 steps of warmup to 1e-3 and then a constant rate, so
that both have the same: its decays end one step later than ours.

Ours is `python -m trainer`. torchtitan's own trainer needs a GPU, so its model, loss, optimizer and schedule
run in a loop of this file; its attention is ScaledDotProductAttention, since FlexAttention has no backward
pass on a CPU. What rounding alone does is the third run: ours, with micro-batches of half the size.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import torch
from harness import training_run
from harness.sidebyside import RESULTS, ROOT, Report, record, texts

from pipeline.stages import bpe
from trainer import hf
from trainer.config import RunConfig, load_run_config
from trainer.data.loader import TrainingData
from trainer.model.llama import Llama
from trainer.system import launch
from trainer.system.durable import read_json_lines

VOCAB, LAYERS, WIDTH, HEADS, D_FF, SEQ_LEN, ROWS = 4096, 4, 128, 4, 384, 256, 4
LR, WARMUP, MEGABYTES = 1e-3, 100, 6
LAST = 50  # steps whose mean loss is compared
SCALED_BY_DEPTH = ("o_proj.weight", "up_proj.weight", "down_proj.weight")


def prepare(directory: Path, steps: int) -> Path:
    """The configuration of our run."""
    pieces = [
        text[at : at + 10_000]
        for text in texts(("enwiki", "books"), MEGABYTES)
        for at in range(0, len(text), 10_000)
    ]
    tokens = ROWS * SEQ_LEN
    training: dict[str, Any] = {
        "model": {
            "n_layers": LAYERS,
            "d_model": WIDTH,
            "n_heads": HEADS,
            "n_kv_heads": HEADS,
            "d_ff": D_FF,
            "qk_norm": False,
        },
        "seq_len": SEQ_LEN,
        "global_batch_tokens": tokens,
        "micro_batch_size": ROWS,
        "max_tokens": steps * tokens,
        "precision": "fp32",
        "pretrained": {"path": str(directory / "first")},
        "optimizer": {
            "kind": "adamw",
            "lr": LR,
            "betas": [0.9, 0.95],
            "weight_decay": 0.1,
            "groups": [{"pattern": "*", "weight_decay": 0.1}],
        },
        "schedule": {"kind": "constant", "warmup_tokens": WARMUP * tokens},
        "checkpoint": {"every_tokens": steps * tokens},
        "evaluation": {"every_tokens": steps * tokens},
    }
    tokenizer = bpe.train([pa.array(pieces)], bpe.TokenizerParams(vocab_size=VOCAB))
    path = training_run.write(directory, tokenizer, pieces[1:], pieces[0], training)
    first_weights(load_run_config(path), directory / "first")
    return path


@torch.no_grad()
def first_weights(config: RunConfig, directory: Path) -> None:
    """Weights drawn as torchtitan draws those of Llama 3 (at b5bcd76, torchtitan/models/llama3/__init__.py),
    as a model to start from.
    """
    torch.manual_seed(0)
    model = Llama(config.training.model, VOCAB, SEQ_LEN, "sdpa")
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.fill_(1.0)
        elif name == "lm_head.weight":
            std = WIDTH**-0.5
            torch.nn.init.trunc_normal_(parameter, 0.0, std, -3 * std, 3 * std)
        elif name == "model.embed_tokens.weight":
            parameter.normal_()
        else:
            block = int(name.split(".")[2])  # model.layers.<block>
            parameter.normal_(0.0, 0.02 / ((2 * (block + 1)) ** 0.5 if name.endswith(SCALED_BY_DEPTH) else 1))
    hf.export(
        model,
        config.data.tokenizer,
        bot_id=config.data.bot_id,
        eot_id=config.data.eot_id,
        destination=directory,
    )


def ours(config: Path, name: str, *overrides: str) -> list[float]:
    """The loss of each step of a run of the trainer."""
    run_dir = config.parent / name
    command = [*launch.command(config), f"run_dir={run_dir}", *overrides]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | launch.environment())
    return [line["loss"] for line in read_json_lines(run_dir / "metrics.jsonl") if line["kind"] == "train"]


def torchtitans(config: Path) -> list[float]:
    """The loss of each step of torchtitan's model, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, __file__, "--peer", str(config)],
        check=True,
        cwd=ROOT,
        env=os.environ | launch.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    losses: list[float] = json.loads(ended.stdout.splitlines()[-1])
    return losses


def peer(config: RunConfig) -> list[float]:
    """Trains torchtitan's model on the batches of `config`."""
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw

    torch.set_num_threads(launch.physical_cores())
    training = config.training
    model = _torchtitans_model(config)
    loss_of = CrossEntropyLoss(CrossEntropyLoss.Config(global_vocab_size=VOCAB))
    optimizers = default_adamw(lr=LR).build(model_parts=[model])
    schedule = LRSchedulersContainer.Config(warmup_steps=WARMUP, decay_ratio=0.0)
    schedules = schedule.build(optimizers=optimizers, training_steps=training.steps)
    data = TrainingData(config.data, training, config.run_dir / "packing")
    losses = []
    for step in range(training.steps):
        windows = torch.from_numpy(data.batch(step, 0, 1))
        optimizers.zero_grad()
        targets = windows[:, 1:]
        loss, _ = loss_of(model(windows[:, :-1]), targets, torch.tensor(float(targets.numel())))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizers.step()
        schedules.step()
        losses.append(loss.item())
    return losses


def _torchtitans_model(config: RunConfig) -> Any:
    """Its Llama 3 in our shape, with the first weights of our run."""
    from torchtitan.models import llama3
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
    from torchtitan.models.common.attention import ScaledDotProductAttention

    assert config.training.pretrained and config.training.pretrained.path
    first = hf.load_model(config.training.pretrained.path, torch.device("cpu"))
    shape = first.config
    rope = ComplexRoPE.Config(dim=shape.head_dim, max_seq_len=SEQ_LEN, theta=shape.rope_theta, scaling="none")
    layers = llama3._build_llama3_layers(
        n_layers=LAYERS, dim=WIDTH, n_heads=HEADS, hidden_dim=D_FF, rope=rope, attn_backend="flex"
    )
    for layer in layers:
        layer.attention = dataclasses.replace(
            layer.attention, inner_attention=ScaledDotProductAttention.Config()
        )
    whole = llama3.Llama3Model.Config(
        dim=WIDTH,
        vocab_size=VOCAB,
        tok_embeddings=Embedding.Config(num_embeddings=VOCAB, embedding_dim=WIDTH),
        norm=RMSNorm.Config(normalized_shape=WIDTH),
        lm_head=Linear.Config(in_features=WIDTH, out_features=VOCAB),
        layers=layers,
    )
    weights = {name: weight.detach() for name, weight in first.named_parameters()}
    model = whole.build()
    model.load_state_dict(llama3.Llama3StateDictAdapter(whole, None).from_hf(weights))
    return model


def compare(runs: dict[str, list[float]]) -> dict[str, Report]:
    """Each run beside the first one, in nats a token."""
    first, *others = runs.items()
    found = {}
    for name, losses in others:
        apart = np.abs(np.array(losses) - np.array(first[1]))
        means = [float(np.mean(run[-LAST:])) for run in (first[1], losses)]
        found[name] = {
            "first_step": float(f"{apart[0]:.2g}"),
            "mean": float(f"{apart.mean():.2g}"),
            "largest": float(f"{apart.max():.2g}"),
            "largest_at_step": int(apart.argmax()) + 1,
            f"mean_of_last_{LAST}": [round(mean, 4) for mean in means],
        }
    return found


def draw(runs: dict[str, list[float]], path: Path) -> None:
    """The losses, and below them how far each run is from the first."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 7), sharex=True, height_ratios=(3, 2))
    first = np.array(next(iter(runs.values())))
    for (name, losses), width in zip(runs.items(), (2.0, 0.8, 0.8), strict=True):
        steps = np.arange(1, len(losses) + 1)
        (line,) = above.plot(steps, losses, linewidth=width, label=name)
        if losses != first.tolist():
            apart = np.abs(np.array(losses) - first)
            below.plot(steps, apart, linewidth=width, color=line.get_color(), label=name)
    above.set_ylabel("loss, nats a token")
    below.set_ylabel("apart from groundwork")
    below.set_yscale("log")
    below.set_xlabel("step")
    for axes in (above, below):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.peer:
        print(json.dumps(peer(load_run_config(chosen.peer))))
        return
    with tempfile.TemporaryDirectory() as name:
        config = prepare(Path(name), chosen.steps)
        half = f"training.micro_batch_size={ROWS // 2}"
        runs = {
            "groundwork": ours(config, "run"),
            "torchtitan": torchtitans(config),
            "groundwork, half the micro-batch": ours(config, "half", half),
        }
    draw(runs, RESULTS / "train_torchtitan.png")
    losses = {name: [round(loss, 5) for loss in run[19::20]] for name, run in runs.items()}
    record(
        "train_torchtitan",
        {"steps": chosen.steps, "apart": compare(runs), "loss_of_every_20th_step": losses},
        ("torch", "torchtitan"),
    )


if __name__ == "__main__":
    main()
