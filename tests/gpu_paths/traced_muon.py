"""One step of Muon on a pretended GPU, in a process of its own: `traced_muon.py step key=value ...`."""

# ruff: noqa: I001 (the GPU is pretended before torch is imported)
from tests.gpu_paths.pretended_gpu import pretend, synchronizations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.gpu_paths import generated_code
from trainer.config import ModelConfig, OptimizerConfig
from trainer.model.llama import Llama
from trainer.optim.build import build

RECIPES = Path(__file__).parents[2] / "pipeline/recipes"
GPU = torch.device("cuda", 0)


def step(recipe: str, processes: str) -> dict[str, Any]:
    """What the first of so many processes moves for each weight of the matrices, products by cuBLAS apart,
    and how often its host waits.
    """
    shape = yaml.safe_load((RECIPES / f"{recipe}.yaml").read_text())["training"]["model"]
    generated_code.PRODUCTS.add(torch.ops.aten.baddbmm.default)
    dist.init_process_group("fake", rank=0, world_size=int(processes), store=FakeStore())
    with pretend():
        with GPU:
            model = Llama(ModelConfig.model_validate(shape), 256, 64, "sdpa")
        muon, _ = build(model, OptimizerConfig(kind="muon"), holders=dist.group.WORLD)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        muon.step()
        synchronizations.clear()
        with generated_code.Moved() as moved:
            muon.step()
        weights = sum(matrix.numel() for group in muon.param_groups for matrix in group["params"])
    return {"synchronizations": sum(synchronizations.values()), "bytes_a_weight": moved.total / weights}


if __name__ == "__main__":
    assert sys.argv[1] == "step"
    print(json.dumps(step(**dict(argument.split("=", 1) for argument in sys.argv[2:]))))
