"""The options by which texts are drawn from a model."""

import argparse
from collections.abc import Sequence

from trainer.config import SamplesConfig, samples_of
from trainer.system.errors import TrainerError

SEEDS = 1 << 63


def add_sampling(parser: argparse.ArgumentParser, what: str, max_new_tokens: int, temperature: float) -> None:
    """Adds the options of all commands, with these defaults. `what` is written: texts or answers."""
    add = parser.add_argument
    said = f"end each {what} after at most this many tokens; default: %(default)s"
    add("--max-new-tokens", metavar="N", type=int, default=max_new_tokens, help=said)
    said = "lower is more predictable; 0 decodes greedily; default: %(default)s"
    add("--temperature", metavar="T", type=float, default=temperature, help=said)
    said = "sample from this many of the likeliest tokens; 0: from all; default: %(default)s"
    add("--top-k", metavar="K", type=int, default=SamplesConfig().top_k, help=said)


def add_drawing(parser: argparse.ArgumentParser, temperature: float) -> None:
    """Adds the options, with `temperature` as its default."""
    defaults = SamplesConfig()
    add_sampling(parser, "text", defaults.max_new_tokens, temperature)
    add = parser.add_argument
    said = "sample from the likeliest tokens of this total probability; 1, the default: from all"
    add("--top-p", metavar="P", type=float, default=defaults.top_p, help=said)
    add("--seed", metavar="N", type=int, default=0, help="seed of the sampling; default: %(default)s")


def drawn(options: argparse.Namespace, prompts: Sequence[str] = ()) -> SamplesConfig:
    """What the options of `add_drawing` say. Raises TrainerError."""
    if not -SEEDS <= options.seed < SEEDS:
        raise TrainerError(f"--seed {options.seed} does not fit into 64 bits: take a smaller number")
    settings = {name: getattr(options, name) for name in ("max_new_tokens", "temperature", "top_k", "top_p")}
    return samples_of({"prompts": list(prompts), **settings})
