"""The learning rate's course, a pure function of tokens."""

import math

from trainer.config import ScheduleConfig


def lr_factor(config: ScheduleConfig, tokens: int, max_tokens: int) -> float:
    """What every learning rate is multiplied by in a step that ends at `tokens` seen. 0 < tokens <= max_tokens."""
    if tokens < config.warmup_tokens:
        return tokens / config.warmup_tokens
    if config.kind == "warmup_cosine":
        done = (tokens - config.warmup_tokens) / max(1, max_tokens - config.warmup_tokens)
        return config.min_lr_ratio + (1 - config.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    left = (max_tokens - tokens) / (config.decay_fraction * max_tokens)
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * min(1.0, left)
