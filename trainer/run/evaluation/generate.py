"""Generates text with a model, for several prompts at a time, with a cache of keys and values."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trainer import hf
from trainer.config import SamplesConfig
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.cache import POSITIONS, Cache, RowsCache
from trainer.model.llama import Llama
from trainer.model.precision import autocast, multiplies_bf16
from trainer.system.errors import TrainerError

# A block takes 8 to 15 s to compile, and each call of a compiled one saves the host about 0.2 ms. Measured on
# a Xeon with blocks so small that little else counts (4 of width 256: 325 and 465 tokens/s), not on a GPU.
COMPILED_CALLS = 50_000


@torch.no_grad()
def generate(
    model: Llama,
    prompts: Sequence[list[int]],
    samples: SamplesConfig,
    eot_id: int,
    generators: Sequence[torch.Generator],
) -> list[list[int]]:
    """Continues each of `prompts`, with the generator of the same number, to `eot_id` (not returned),
    `max_new_tokens` or the end of the model's context, whichever comes first.

    On a CPU in fp32; on a GPU in bf16 where it multiplies bf16. Raises TrainerError if a prompt is empty or
    fills the context.
    """
    for prompt in prompts:
        if not 0 < len(prompt) < model.max_length:
            raise TrainerError(
                f"the prompt has {len(prompt)} tokens; it must have 1 to {model.max_length - 1} to leave "
                f"room in the model's context of {model.max_length}"
            )
    device = model.lm_head.weight.device
    room = min(max(map(len, prompts), default=0) + samples.max_new_tokens, model.max_length)
    together = max(1, POSITIONS[device.type] // max(1, room))
    written: list[list[int]] = []
    # Once for all: at its end autocast forgets the weights in half precision.
    with autocast("bf16" if _in_bf16(device) else "fp32", device):
        for start in range(0, len(prompts), together):
            some = slice(start, start + together)
            written += _generated(model, prompts[some], samples, eot_id, generators[some], room)
    return written


def _generated(
    model: Llama,
    prompts: Sequence[list[int]],
    samples: SamplesConfig,
    eot_id: int,
    generators: Sequence[torch.Generator],
    room: int,
) -> list[list[int]]:
    device = model.lm_head.weight.device
    written: list[list[int]] = [[] for _ in prompts]
    limits = [min(samples.max_new_tokens, model.max_length - len(prompt)) for prompt in prompts]
    caches = [Cache(len(prompt)) for prompt in prompts]
    ends = [
        model(torch.tensor([prompt], device=device), cache=cache)[:, -1:]
        for prompt, cache in zip(prompts, caches, strict=True)
    ]
    hidden, cache = torch.cat(ends), RowsCache(caches, room, compiled=_compiles(model, max(limits)))
    unfinished = set(range(len(prompts)))
    while True:
        logits = model.logits(hidden[:, -1]).float().cpu()
        for row in sorted(unfinished):
            token = choose(logits[row], samples, generators[row])
            if token != eot_id:
                written[row].append(token)
            if token == eot_id or len(written[row]) == limits[row]:
                unfinished.remove(row)
        if not unfinished:
            return written
        tokens = [[row[-1] if row else eot_id] for row in written]
        hidden = model(torch.tensor(tokens, device=device), cache=cache)


def _in_bf16(device: torch.device) -> bool:
    """A CPU writes in fp32, so that a text stays the same on all of them."""
    return device.type == "cuda" and multiplies_bf16(device)


def _compiles(model: Llama, steps: int) -> bool:
    """Whether so many steps pay for compiling a block. Only on a GPU, which otherwise waits for its launches:
    on a CPU products take most of the time, and no context is long enough.
    """
    return model.lm_head.weight.is_cuda and steps * model.config.n_layers >= COMPILED_CALLS


def choose(logits: torch.Tensor, samples: SamplesConfig, generator: torch.Generator) -> int:
    """Draws a token from `logits` [vocab_size] on the CPU: temperature, then `top_k`, then `top_p` of the
    rest.
    """
    if samples.temperature == 0:
        return int(logits.argmax())
    if 0 < samples.top_k < len(logits):
        logits = logits.where(logits >= logits.topk(samples.top_k).values[-1], -torch.inf)
    probabilities, tokens = (logits / samples.temperature).softmax(dim=-1).sort(descending=True)
    likelier = probabilities.cumsum(dim=-1) - probabilities
    return int(
        tokens[torch.multinomial(probabilities.where(likelier < samples.top_p, 0.0), 1, generator=generator)]
    )


def complete(
    model: Llama, tokenizer: Tokenizer, bot_id: int, eot_id: int, samples: SamplesConfig, seed: int
) -> list[str]:
    """Returns each of samples.prompts, taken as the beginning of a document, with the model's continuation,
    which depends on `seed` and the prompt.
    """
    prompts = [
        [bot_id, *tokenizer.encode(prompt, add_special_tokens=False).ids] for prompt in samples.prompts
    ]
    generators = [torch.Generator().manual_seed(seed) for _ in prompts]
    continuations = generate(model, prompts, samples, eot_id, generators)
    return [
        str(tokenizer.decode(prompt[1:] + continuation, skip_special_tokens=True))
        for prompt, continuation in zip(prompts, continuations, strict=True)
    ]


def written(model: Llama, directory: Path, samples: SamplesConfig, seed: int) -> list[dict[str, str]]:
    """Completes each of samples.prompts with the tokenizer of an exported model's directory: `prompt` and
    `text`. Keeps the weights of `model` in bf16 where it writes in bf16.
    """
    config, tokenizer = hf.read_config(directory), load_tokenizer(directory)
    begin, end = (_token_id(directory, config, key) for key in ("bos_token_id", "eos_token_id"))
    if _in_bf16(model.lm_head.weight.device):
        # A compiled block would cast fp32 weights for each token.
        model.to(torch.bfloat16)
    texts = complete(model, tokenizer, begin, end, samples, seed)
    return [
        {"prompt": prompt, "text": text.strip()} for prompt, text in zip(samples.prompts, texts, strict=True)
    ]


def _token_id(directory: Path, config: dict[str, Any], key: str) -> int:
    number = config.get(key)
    if not isinstance(number, int):
        raise TrainerError(f"{directory / 'config.json'}: {key} is {number!r}: set it to the id of one token")
    return number


def complete_with_model_of(directory: Path, samples: SamplesConfig, seed: int) -> list[dict[str, str]]:
    """As `written`, with the model of the directory."""
    model = hf.load_model(directory, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    return written(model, directory, samples, seed)
