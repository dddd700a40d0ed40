"""`python -m trainer.check EXPORT`: reads an exported model back, and compares its logits with those of `transformers` where that is installed."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from trainer.hf import load_model

TOKENS = 64
ALLOWED_DIFFERENCE = 1e-3  # of logits in fp32


def check(export: Path) -> dict[str, Any]:
    """`tensors`, `parameters`, whether all are `finite`, the largest `difference` of logits (None without `transformers`) and the one allowed."""
    tensors = load_file(export / "model.safetensors")
    return {
        "tensors": len(tensors),
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "finite": all(bool(tensor.isfinite().all()) for tensor in tensors.values()),
        "difference": _difference(export) if find_spec("transformers") else None,
        "allowed_difference": ALLOWED_DIFFERENCE,
    }


def _difference(export: Path) -> float:
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(export).float().eval()
        ids = torch.arange(min(TOKENS, theirs.config.max_position_embeddings))[None] * 37 % theirs.config.vocab_size
        ours = load_model(export, torch.device("cpu"))
        logits = ours.logits(ours(ids))[..., : theirs.config.vocab_size]
        return float((logits - theirs(ids).logits).abs().max())


if __name__ == "__main__":
    print(json.dumps(check(Path(sys.argv[1]))))
