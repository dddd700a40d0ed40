"""Generates text with a model, one token at a time, with a cache of keys and values."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trainer import hf
from trainer.config import SamplesConfig
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.llama import Cache, Llama
from trainer.system.errors import TrainerError


@torch.no_grad()
def generate(
    model: Llama, prompt: list[int], samples: SamplesConfig, eot_id: int, generator: torch.Generator
) -> list[int]:
    """Continues `prompt` to `eot_id` (not returned), `max_new_tokens` or the end of the model's context,
    whichever comes first.

    Raises TrainerError if the prompt is empty or fills the context.
    """
    if not 0 < len(prompt) < model.max_length:
        raise TrainerError(
            f"the prompt has {len(prompt)} tokens; it must have 1 to {model.max_length - 1} to leave room in "
            f"the model's context of {model.max_length}"
        )
    device = model.model.embed_tokens.weight.device
    cache, tokens = Cache(), torch.tensor([prompt], device=device)
    written: list[int] = []
    for _ in range(min(samples.max_new_tokens, model.max_length - len(prompt))):
        logits = model.logits(model(tokens, cache=cache)[:, -1])[0].float().cpu()
        token = choose(logits, samples, generator)
        if token == eot_id:
            break
        written.append(token)
        tokens = torch.tensor([[token]], device=device)
    return written


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
    model: Llama,
    tokenizer: Tokenizer,
    prompt: str,
    bot_id: int,
    eot_id: int,
    samples: SamplesConfig,
    seed: int,
) -> str:
    """Returns `prompt`, taken as the beginning of a document, with the model's continuation."""
    ids = [bot_id, *tokenizer.encode(prompt, add_special_tokens=False).ids]
    generator = torch.Generator().manual_seed(seed)
    written = generate(model, ids, samples, eot_id, generator)
    return str(tokenizer.decode(ids[1:] + written, skip_special_tokens=True))


def written(model: Llama, directory: Path, samples: SamplesConfig, seed: int) -> list[dict[str, str]]:
    """Completes each of samples.prompts with the tokenizer of an exported model's directory: `prompt` and
    `text`.
    """
    config, tokenizer = hf.read_config(directory), load_tokenizer(directory)
    begin, end = (_token_id(directory, config, key) for key in ("bos_token_id", "eos_token_id"))
    return [
        {"prompt": prompt, "text": complete(model, tokenizer, prompt, begin, end, samples, seed).strip()}
        for prompt in samples.prompts
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
