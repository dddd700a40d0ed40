"""Generates texts with a model, of any length, many at a time."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tokenizers import Tokenizer

from trainer import hf
from trainer.config import SamplesConfig
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.cache import POSITIONS
from trainer.model.llama import Llama
from trainer.model.precision import Precision, autocast, multiplies_bf16
from trainer.model.streaming import FIRST, Stream
from trainer.system.errors import TrainerError

# Texts that are written at a time. With more, a step takes longer by as much as there are more.
ROWS = 128


@dataclass(frozen=True)
class Prompt:
    """A text to continue, at least one token. Its `first` tokens are never forgotten."""

    tokens: Sequence[int]
    first: int = FIRST


@dataclass
class Continuation:
    """The tokens that were written, and `end`, the token that ended them, which is not among them; None if
    the limit did.
    """

    tokens: list[int] = field(default_factory=list)
    end: int | None = None


@dataclass
class _Row:
    """A text of a batch: the number of its prompt, what the model has not read of it, and what is written."""

    number: int
    unread: Sequence[int]
    generator: torch.Generator
    text: Continuation = field(default_factory=Continuation)

    def take(self, token: int, ends: Collection[int]) -> None:
        self.unread = [token]
        if token in ends:
            self.text.end = token
        else:
            self.text.tokens.append(token)


@torch.no_grad()
def generate(
    model: Llama,
    prompts: Sequence[Prompt],
    samples: SamplesConfig,
    ends: Collection[int],
    *,
    seed: int = 0,
    room: int | None = None,
) -> Iterator[tuple[int, Continuation]]:
    """Continues each prompt to a token of `ends` or to `max_new_tokens`. Yields its number and the
    continuation once that has ended. A text depends on its prompt and on `seed`, not on the other prompts.

    Prompt and text may be longer than `room`, by default the model's context: `Stream` then keeps the
    beginning and the newest tokens. The texts of a batch take at most POSITIONS, unless one alone takes more.

    On a CPU in fp32; on a GPU in bf16 where it multiplies bf16.
    """
    device, room = model.device, room or model.max_length
    for batch in _batches(prompts, samples.max_new_tokens, room, POSITIONS[device.type]):
        # Once for all tokens: at its end autocast forgets the weights in half precision.
        with autocast(writing_precision(device), device):
            found = list(_generate_batch(model, batch, samples, ends, seed=seed, room=room))
        yield from found


def _batches(
    prompts: Sequence[Prompt], longest: int, room: int, positions: int
) -> Iterator[list[tuple[int, Prompt]]]:
    """Prompts with their numbers, sorted by length. A batch takes at most `positions`. A prompt that exceeds
    the room is alone, since it is read in pieces.
    """
    batch: list[tuple[int, Prompt]] = []
    for number, prompt in sorted(enumerate(prompts), key=lambda one: len(one[1].tokens)):
        wanted = (len(batch) + 1) * min(len(prompt.tokens) + longest, room)
        if batch and (wanted > positions or len(batch) == ROWS or len(prompt.tokens) > room):
            yield batch
            batch = []
        batch.append((number, prompt))
    if batch:
        yield batch


def _generate_batch(
    model: Llama,
    batch: list[tuple[int, Prompt]],
    samples: SamplesConfig,
    ends: Collection[int],
    *,
    seed: int,
    room: int,
) -> Iterator[tuple[int, Continuation]]:
    """A batch, of which the last prompt is the longest, in the order in which the texts end."""
    most = min(len(batch[-1][1].tokens) + samples.max_new_tokens, room)
    stream = Stream(model, most, [prompt.first for _, prompt in batch])
    rows = [_Row(number, prompt.tokens, torch.Generator().manual_seed(seed)) for number, prompt in batch]
    while rows:
        unread, generators = [row.unread for row in rows], [row.generator for row in rows]
        tokens = next_tokens(model, stream, unread, samples, generators)
        for place, (row, token) in reversed(list(enumerate(zip(rows, tokens, strict=True)))):
            row.take(token, ends)
            if row.text.end is not None or len(row.text.tokens) == samples.max_new_tokens:
                yield row.number, row.text
                stream.drop(place)
                rows[place] = rows[-1]
                rows.pop()


def next_tokens(
    model: Llama,
    stream: Stream,
    unread: Sequence[Sequence[int]],
    samples: SamplesConfig,
    generators: Sequence[torch.Generator],
) -> list[int]:
    """Reads the tokens of each row of a stream that are unread, and chooses the next one."""
    counts = [len(tokens) for tokens in unread]
    padded = [[*tokens, *[0] * (max(counts) - len(tokens))] for tokens in unread]
    states = stream.read(torch.tensor(padded, device=model.device), counts)
    return choose(model.logits(states).float(), samples, generators)


def writing_precision(device: torch.device) -> Precision:
    """What texts are written in: fp32 on every CPU, where a text stays the same."""
    return "bf16" if device.type == "cuda" and multiplies_bf16(device) else "fp32"


def choose(logits: torch.Tensor, samples: SamplesConfig, generators: Sequence[torch.Generator]) -> list[int]:
    """Draws a token from each of `logits` [rows, vocab_size], on the CPU with the row's generator:
    temperature, then `top_k`, then `top_p` of the rest.
    """
    if samples.temperature == 0:
        return logits.argmax(dim=-1).tolist()
    logits = logits.cpu()
    if 0 < samples.top_k < logits.shape[1]:
        logits = logits.where(logits >= logits.topk(samples.top_k).values[:, -1:], -torch.inf)
    probabilities, tokens = (logits / samples.temperature).softmax(dim=-1).sort(descending=True)
    likelier = probabilities.cumsum(dim=-1) - probabilities
    odds = probabilities.where(likelier < samples.top_p, 0.0)
    odds[:, 0] = probabilities[:, 0]  # however small `top_p` is
    drawn = [torch.multinomial(row, 1, generator=own) for row, own in zip(odds, generators, strict=True)]
    return tokens.gather(1, torch.stack(drawn)).flatten().tolist()


def complete(
    model: Llama,
    tokenizer: Tokenizer,
    samples: SamplesConfig,
    *,
    bot_id: int,
    ends: Collection[int],
    seed: int,
) -> list[str]:
    """Returns each of samples.prompts, taken as the beginning of a document, with the model's continuation,
    which depends on `seed` and the prompt.
    """
    prompts = [tokenizer.encode(text, add_special_tokens=False).ids for text in samples.prompts]
    begun = [Prompt([bot_id, *prompt]) for prompt in prompts]
    found = dict(generate(model, begun, samples, ends, seed=seed))
    return [
        str(tokenizer.decode(prompt + found[number].tokens, skip_special_tokens=True))
        for number, prompt in enumerate(prompts)
    ]


def complete_prompts(
    model: Llama, directory: Path, samples: SamplesConfig, seed: int
) -> list[dict[str, str]]:
    """Completes samples.prompts with the tokenizer of an exported model: `prompt` and `text`."""
    bot_id, tokenizer = hf.read_config(directory).get("bos_token_id"), load_tokenizer(directory)
    if not isinstance(bot_id, int) or not 0 <= bot_id < model.vocab_size:
        raise TrainerError(
            f"{directory / 'config.json'}: bos_token_id is {bot_id!r}: set it to the id of one token, below "
            f"{model.vocab_size}"
        )
    ends = hf.end_ids(directory)
    texts = complete(model, tokenizer, samples, bot_id=bot_id, ends=ends, seed=seed)
    return [{"prompt": prompt, "text": text} for prompt, text in zip(samples.prompts, texts, strict=True)]


def complete_with_model_of(directory: Path, samples: SamplesConfig, seed: int) -> list[dict[str, str]]:
    """As `complete_prompts`, with the model in the directory."""
    return complete_prompts(hf.load_model(directory), directory, samples, seed)
