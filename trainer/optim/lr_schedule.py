"""The learning rate schedule, a pure function of tokens."""

import math

from trainer.config import CurriculumStage, ScheduleConfig


def lr_factor(stage: CurriculumStage, tokens: int) -> float:
    """The factor of every learning rate in a step of `stage` that ends at `tokens` of the run, 0 < tokens <=
    max_tokens.

    The schedule waits after steps skipped in fp16, so `tokens` may lie before the stage, whose own schedule
    then is at its first token.
    """
    return stage.lr_multiplier * share_of_peak(
        stage.schedule, max(1, tokens - stage.schedule_begin), stage.schedule_tokens
    )


def share_of_peak(config: ScheduleConfig, tokens: int, max_tokens: int) -> float:
    """The share of the peak learning rate after `tokens` of a schedule over `max_tokens`. 0 < tokens <=
    max_tokens.
    """
    warmup = config.warmup_tokens
    if tokens < warmup:
        return tokens / warmup
    done = (tokens - warmup) / max(1, max_tokens - warmup)
    if config.kind == "constant":
        left = 1.0
    elif config.kind == "wsd":
        decay_tokens = config.decay_fraction * max_tokens
        left = _left(config.decay, max(0.0, 1 - (max_tokens - tokens) / decay_tokens))
    else:
        left = _left(config.kind, done)
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * left


def _left(shape: str, done: float) -> float:
    """Falls from 1 to 0 as `done` goes from 0 to 1. `sqrt` is the 1 - sqrt decay of Hägele et al. 2024."""
    if shape == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    return 1 - (math.sqrt(done) if shape == "sqrt" else done)
