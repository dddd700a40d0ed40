"""Traces of FlashAttention on a pretended GPU, each in a process of its own, as those of `traces.py`."""

import json
import sys
from collections.abc import Callable
from typing import Any

from tests.gpu_paths.traces import block

# The operators of the kernels, by the library that they are in: PyTorch's own, and those of flash-attn 2.
OPERATORS = {
    "torch_attn": ("_varlen_attn", "_varlen_attn_backward"),
    "flash_attn": ("_flash_attn_varlen_forward", "_flash_attn_varlen_backward"),
}


def passes(package: str = "torch_attn") -> dict[str, Any]:
    """How often the forward and backward graphs of a block with selective recomputation attend."""
    from tests.gpu_paths import generated_code

    block(model="1b", rows="4", length="4096", kind="selective", wanted="flash")
    return {
        name: [graph.source.count(f"torch.ops.{package}.{name}.default(") for graph in generated_code.graphs]
        for name in OPERATORS[package]
    }


def main(name: str, *arguments: str) -> None:
    given = dict(argument.split("=", 1) for argument in arguments)
    kinds: dict[str, Callable[..., dict[str, Any]]] = {"passes": passes}
    print(json.dumps(kinds[name](**given)))


if __name__ == "__main__":
    main(*sys.argv[1:])
