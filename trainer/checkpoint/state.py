"""The contents of a checkpoint, written and read back.

    hf/                     the weights in Hugging Face's format, with the tokenizer
    adapter/                with LoRA, the adapter in peft's format; `hf` has its weights merged
    optimizer.safetensors   every tensor of the optimizers, `<slot>/<parameter name>`; missing in a checkpoint
                            of the model only (training.checkpoint.optimizer).
                            A split model has optimizer-<number>-of-<processes>.safetensors from each process
                            (trainer.checkpoint.sharded_safetensors)
    state.json              position (step, tokens, samples), run identity and its hash, last losses, spike
                            history, the machine; and for other runs the name of the state (`state`, see
                            trainer.run.state_chain), what rounded it (`rounding`) and the text that validates
                            (`held_out`). `trunks`: the runs that this one went on from, and where
    lineage.json            what the model was made from
    manifest.json           size and sha256 of every file

No random state is stored: initialization is keyed by parameter, the order and dropout by sample.
"""

import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
from torch.optim import Optimizer

from trainer import hf
from trainer.checkpoint import publish
from trainer.checkpoint.background import Staging
from trainer.checkpoint.publish import CheckpointError
from trainer.checkpoint.sharded_safetensors import SavedTensors, TensorPart, save_parts
from trainer.config import RunConfig, config_hash
from trainer.model.llama import Llama
from trainer.model.lora import adapters
from trainer.optim.state import load_state_tensors, state_tensors
from trainer.parallel.dtensor import is_first_holder, local_slices, local_tensor
from trainer.parallel.world import World
from trainer.system.durable import read_json

LIBRARIES = ("torch", "numpy", "safetensors", "tokenizers")
IDENTITY = ("config_hash", "meaning")  # keys of state.json that belong to the run, not to its progress
TOLD = ("step", "tokens", "corpus_tokens", "changes", "machine", "trunks")  # of the progress, in lineage.json


@dataclass(frozen=True)
class OptimizerFile:
    """The state of the optimizers that one process writes, in host memory: of a split model `parts` of it."""

    name: str
    tensors: dict[str, torch.Tensor]
    parts: dict[str, TensorPart]

    @classmethod
    def of(cls, model: Llama, optimizers: list[Optimizer], staging: Staging, world: World) -> Self:
        """Copies the state into `staging`."""
        tensors, parts, name = state_tensors(model, optimizers), {}, "optimizer.safetensors"
        if world.mesh is not None:
            tensors = {
                name: tensor
                for name, tensor in tensors.items()
                if is_first_holder(tensor, world.mesh) and local_tensor(tensor).numel()
            }
            parts = {
                name: TensorPart(tuple(axis.start for axis in local_slices(tensor)), tuple(tensor.shape))
                for name, tensor in tensors.items()
            }
            name = f"optimizer-{world.rank + 1:05d}-of-{world.size:05d}.safetensors"
        held = staging.copy((name, local_tensor(tensor)) for name, tensor in tensors.items())
        return cls(name, held, parts)


@dataclass(frozen=True)
class Facts:
    """What state.json and lineage.json say: `progress` is that of the run, as state.json has it."""

    config: RunConfig
    identity: dict[str, Any]
    progress: dict[str, Any]

    def write(self, directory: Path) -> None:
        """Writes both files into the directory of a checkpoint."""
        hashed = config_hash(self.identity)
        named = dict(zip(IDENTITY, (hashed, self.identity), strict=True))
        write_json(directory / "state.json", {**self.progress, **named})
        told: dict[str, Any] = {
            **{name: self.progress[name] for name in TOLD},
            "config_hash": hashed,
            "config": self.config.training.model_dump(mode="json"),
            "libraries": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
        }
        if weights := self.identity["training"]["pretrained"]:
            told["pretrained_sha256"] = weights
        write_json(directory / "lineage.json", {**self.config.lineage, "training": told})


@dataclass(frozen=True)
class Snapshot:
    """What one process writes of a checkpoint, in host memory.

    If the model is split, only the main process has the `model`. `optimizer` is None in a checkpoint of the
    model only.
    """

    model: Llama | None
    adapter: dict[str, torch.Tensor]
    optimizer: OptimizerFile | None
    facts: Facts

    def write(self, directory: Path) -> None:
        """Writes everything but the manifest into the directory of a checkpoint."""
        if self.optimizer is not None:
            save_parts(directory / self.optimizer.name, self.optimizer.tensors, self.optimizer.parts)
        if self.model is None:
            return
        config = self.facts.config
        data, training = config.data, config.training
        end = data.chat.end if data.chat and training.objective != "pretrain" else None
        hf.export(
            self.model,
            data.tokenizer,
            bot_id=data.bot_id,
            eot_id=data.eot_id,
            destination=directory / "hf",
            end_id=end,
        )
        if training.lora and training.pretrained:
            tokens, base = config.adapted_tokens, training.pretrained
            hf.save_adapter(self.adapter, training.lora, base, directory / "adapter", tokens)
        if self.facts.progress["tokens"] == training.max_tokens:
            # Only now does training hold no gradients, so that a second model fits.
            hf.check_export(self.model, directory / "hf")
        self.facts.write(directory)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The contents of a checkpoint's state.json. Raises CheckpointError if the file is damaged."""
    try:
        state: dict[str, Any] = read_json(checkpoint / "state.json")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{checkpoint / 'state.json'}: cannot be read ({error})") from error
    return state


def restore(checkpoint: Path, model: Llama, optimizers: list[Optimizer]) -> None:
    """Restores the weights and, unless it is of the model only, the optimizer state, bit for bit.
    Hyperparameters come from the configuration.
    """
    if adapters(model):  # the weights are those that the run starts from
        hf.load_adapter(model, checkpoint / "adapter")
    else:
        hf.load_weights(model, checkpoint / "hf")
    parameters = dict(model.named_parameters())
    with SavedTensors(publish.optimizer_files(checkpoint)) as saved:
        tensors = {}
        for name, shape in saved.shapes.items():
            owner = name.partition("/")[2]
            parameter = parameters.get(owner)
            if parameter is None and owner in model.shapes:
                continue  # another process of the pipeline holds it
            held = local_slices(parameter) if parameter is not None and parameter.shape == shape else None
            tensors[name] = saved.read(name, held)
    load_state_tensors(model, optimizers, tensors)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a file of a checkpoint: the same content gives the same bytes."""
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
