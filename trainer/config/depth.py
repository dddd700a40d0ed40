"""Everything from one number, the depth of the model: its shape, learning rates, decay, batch and tokens.

The laws and their reference values are those of nanochat (github.com/karpathy/nanochat at 92d63d4,
scripts/base_train.py and nanochat/gpt.py), which were tuned at depth 12 and batches of 524,288 tokens with
Muon. This trainer's model has no norm after the embedding. In short runs at depths 2 to 4 rates two to four
times as high were better, and eight times little better than four (docs/trainer.md). At the depths that the
laws were tuned for nobody has checked them here.
"""

import math
from collections.abc import Mapping
from typing import Any

WIDTH_OF_A_LAYER, HEAD_DIM = 64, 128
REFERENCE_DEPTH, REFERENCE_WIDTH, REFERENCE_BATCH = 12, 768, 2**19
# The laws count the matrices of blocks and the head, with nanochat's vocabulary, so that depth alone decides.
VOCABULARY, TOKENS_A_WEIGHT = 32_768, 12
# The best batch grows so with the tokens (Bergsma et al. 2025, Power Lines, arXiv 2505.13738).
BATCH_EXPONENT = 0.383
MUON_LR, HEAD_LR, EMBEDDING_LR, WEIGHT_DECAY = 0.02, 0.008, 0.3, 0.28
HEAD_DECAY, EMBEDDING_DECAY = 0.01, 0.001
DECAY_FRACTION, MIN_LR_RATIO = 0.65, 0.05


def shape(depth: int) -> dict[str, int]:
    """64 numbers a token for each layer, rounded up to whole heads of 128."""
    heads = -(-depth * WIDTH_OF_A_LAYER // HEAD_DIM)
    width = heads * HEAD_DIM
    wide = round(8 * width / 3 / 64) * 64
    return {"n_layers": depth, "d_model": width, "n_heads": heads, "n_kv_heads": heads, "d_ff": wide}


def tokens(depth: int) -> float:
    """What is compute-optimal: 12 for each weight in the matrices of blocks and in the head."""
    width = shape(depth)["d_model"]
    return TOKENS_A_WEIGHT * (12 * depth * width**2 + VOCABULARY * width)


def batch(depth: int) -> int:
    """Tokens a step, a power of two."""
    grown = REFERENCE_BATCH * (tokens(depth) / tokens(REFERENCE_DEPTH)) ** BATCH_EXPONENT
    return int(2 ** round(math.log2(grown)))


def optimizer(depth: int, batch_tokens: int, tied: bool) -> dict[str, Any]:
    """Rates grow as the root of the batch, those of AdamW fall as the root of the width. The decay keeps
    batch / (rate x decay x tokens) the same (Wang and Aitchison 2024, arXiv 2405.13698).
    """
    by_batch = math.sqrt(batch_tokens / REFERENCE_BATCH)
    by_width = math.sqrt(REFERENCE_WIDTH / shape(depth)["d_model"])
    embedding = {"lr_multiplier": EMBEDDING_LR / HEAD_LR, "weight_decay": EMBEDDING_DECAY}
    groups = [{"pattern": "*embed_tokens*", **embedding}]
    if not tied:
        groups.append({"pattern": "lm_head*", "weight_decay": HEAD_DECAY})
    return {
        "kind": "muon",
        "lr": HEAD_LR * by_batch * by_width,
        "muon_lr": MUON_LR * by_batch,
        "weight_decay": WEIGHT_DECAY * by_batch * tokens(REFERENCE_DEPTH) / tokens(depth),
        "groups": groups,
    }


def filled_in(training: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a `training` section, where `model.depth` decides those that are not set."""
    model, values = training["model"], dict(training)
    depth = checked(model["depth"])
    unit = _whole(values.get("seq_len")) * _whole(values.get("micro_batch_size"))
    values.setdefault("global_batch_tokens", max(1, round(batch(depth) / unit)) * unit)
    step = _whole(values["global_batch_tokens"])
    values.setdefault("max_tokens", max(1, round(tokens(depth) / step)) * step)
    given = values.get("optimizer") or {}
    if isinstance(given, Mapping) and given.get("kind", "muon") == "muon":
        values["optimizer"] = optimizer(depth, step, bool(model.get("tie_embeddings"))) | dict(given)
    values.setdefault(
        "schedule", {"kind": "wsd", "decay_fraction": DECAY_FRACTION, "min_lr_ratio": MIN_LR_RATIO}
    )
    return values


def checked(depth: Any) -> int:
    """Raises ValueError for what is no depth."""
    if _whole(depth, default=0) < 1:
        raise ValueError(f"model.depth is {depth!r}: set it to a whole number from 1 on, such as 12")
    return _whole(depth)


def _whole(value: Any, default: int = 1) -> int:
    """The number that `value` is or spells; the default for anything else, which its own field refuses."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return default
