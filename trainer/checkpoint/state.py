"""What a checkpoint of a run holds, written and read back.

    hf/                     the weights, in Hugging Face's format, with the tokenizer
    optimizer.safetensors   every tensor of the optimizers, `<slot>/<parameter name>`
    state.json              position (step, tokens, samples), the configuration's meaning and hash, last losses
    lineage.json            what the model is made from
    manifest.json           size and sha256 of every file

Nothing in training draws from a global random generator (initialisation is keyed by parameter, the order by sample), so none is stored.
"""

import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch.optim import Optimizer

from trainer import hf
from trainer.checkpoint import store
from trainer.config import RunConfig, config_hash
from trainer.model import Llama
from trainer.optim.state import load_state_tensors, state_tensors
from trainer.precision import LossScale

LIBRARIES = ("torch", "numpy", "safetensors", "tokenizers")


@dataclass(frozen=True)
class Progress:
    """Where a run stands after `step` steps."""

    step: int
    tokens: int
    samples: int
    corpus_samples: dict[str, int]
    loss: float
    evaluation: dict[str, Any] | None
    loss_scale: LossScale


def save(checkpoint: Path, model: Llama, optimizers: list[Optimizer], progress: Progress, config: RunConfig, meaning: dict[str, Any]) -> None:
    """Publishes `checkpoint`, whole or not at all."""

    def write(directory: Path) -> None:
        data = config.data
        hf.export(model, data.tokenizer, data.bot_id, data.eot_id, directory / "hf")
        save_file(state_tensors(model, optimizers), directory / "optimizer.safetensors")
        position = {"step": progress.step, "tokens": progress.tokens, "samples": progress.samples}
        losses = {"loss": progress.loss, "evaluation": progress.evaluation, "loss_scale": asdict(progress.loss_scale)}
        _write_json(directory / "state.json", {**position, **losses, "config_hash": config_hash(meaning), "meaning": meaning})
        corpus_tokens = {name: samples * config.training.seq_len for name, samples in progress.corpus_samples.items()}
        training = {
            "step": progress.step,
            "tokens": progress.tokens,
            "corpus_tokens": corpus_tokens,
            "config_hash": config_hash(meaning),
            "config": config.training.model_dump(mode="json"),
            "libraries": {name: version(name) for name in LIBRARIES},
        }
        _write_json(directory / "lineage.json", {**config.lineage, "training": training})

    store.publish(checkpoint, write)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """state.json of a checkpoint."""
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    return state


def restore(checkpoint: Path, model: Llama, optimizers: list[Optimizer]) -> None:
    """Weights and optimizer state, bit for bit. Hyperparameters stay those of the configuration."""
    hf.load_weights(model, checkpoint / "hf")
    load_state_tensors(model, optimizers, load_file(checkpoint / "optimizer.safetensors"))


def differences(before: Any, now: Any, at: str = "") -> list[str]:
    """The settings that differ between two meanings, as `key: before -> now`."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [line for key in sorted(before.keys() | now.keys()) for line in differences(before.get(key), now.get(key), f"{at}.{key}".lstrip("."))]
    return [] if before == now else [f"{at}: {before} -> {now}"]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
