"""Generates text with a model, of any length."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trainer import hf
from trainer.config import SamplesConfig
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.llama import Llama
from trainer.model.precision import Precision, autocast, multiplies_bf16
from trainer.model.streaming import Stream
from trainer.system.errors import TrainerError


@torch.no_grad()
def generate(
    model: Llama, prompt: list[int], samples: SamplesConfig, eot_id: int, generator: torch.Generator
) -> list[int]:
    """Continues `prompt`, at least one token, to `eot_id` (not returned) or to `max_new_tokens`. Prompt and
    text may be longer than the model's context: `Stream` then keeps the beginning and the newest tokens.

    On a CPU in fp32; on a GPU in bf16 where it multiplies bf16.
    """
    device, tokens, written = model.lm_head.weight.device, prompt, list[int]()
    stream = Stream(model, min(len(prompt) + samples.max_new_tokens, model.max_length))
    # Once for all tokens: at its end autocast forgets the weights in half precision.
    with autocast(writing_precision(device), device):
        while len(written) < samples.max_new_tokens:
            state = stream.read(torch.tensor([tokens], device=device))[0]
            token = choose(model.logits(state).float().cpu(), samples, generator)
            if token == eot_id:
                break
            written.append(token)
            tokens = [token]
    return written


def writing_precision(device: torch.device) -> Precision:
    """What texts are written in: fp32 on every CPU, where a text stays the same."""
    return "bf16" if device.type == "cuda" and multiplies_bf16(device) else "fp32"


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
    texts = []
    for text in samples.prompts:
        prompt = tokenizer.encode(text, add_special_tokens=False).ids
        generator = torch.Generator().manual_seed(seed)
        continuation = generate(model, [bot_id, *prompt], samples, eot_id, generator)
        texts.append(str(tokenizer.decode(prompt + continuation, skip_special_tokens=True)))
    return texts


def written(model: Llama, directory: Path, samples: SamplesConfig, seed: int) -> list[dict[str, str]]:
    """Completes each of samples.prompts with the tokenizer of an exported model's directory: `prompt` and
    `text`.
    """
    config, tokenizer = hf.read_config(directory), load_tokenizer(directory)
    begin, end = (_token_id(directory, config, key) for key in ("bos_token_id", "eos_token_id"))
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
