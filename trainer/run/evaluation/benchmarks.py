"""How well a model answers benchmarks: it chooses the continuation that it finds likeliest."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

from trainer import hf
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.precision import Precision, resolve_precision
from trainer.run.evaluation.conversation import ChatFormat
from trainer.run.evaluation.log_likelihoods import Tokens, log_likelihoods
from trainer.run.evaluation.questions import Messages, rows, unanswered
from trainer.system.durable import room_in, write_atomically
from trainer.system.errors import TrainerError
from trainer.system.intervals import of_mean, wilson


@dataclass(frozen=True)
class Question:
    """A question. `contexts` has one for each continuation: mostly the same, but Winogrande's differ and its
    continuations are the same. `gold`: the right continuation, from 0. Where there are `messages`, role and
    content of each, a continuation answers them, and there is no context.
    """

    contexts: tuple[str, ...]
    continuations: tuple[str, ...]
    gold: int
    messages: Messages | None = None


def read_items(path: Path) -> list[Question]:
    """The items of a file, one JSON object in a line: `context` (a text, or a list with one text for each
    continuation), or instead `messages` (objects with `role` and `content`), `continuations` (texts) and
    `gold`. Raises TrainerError with file and line.
    """
    return [_item(row, place) for place, row in rows(path)]


def _item(row: Any, where: str) -> Question:
    if not isinstance(row, dict):
        raise TrainerError(f"{where}: must be an object with context, continuations and gold")
    context = row.get("context", "" if "messages" in row else None)
    continuations, gold = row.get("continuations"), row.get("gold")
    if not _are_texts(continuations) or not all(continuations):
        raise TrainerError(f"{where}: `continuations` must be a list of texts, none of them empty")
    contexts = [context] * len(continuations) if isinstance(context, str) else context
    if not _are_texts(contexts) or len(contexts) != len(continuations):
        raise TrainerError(f"{where}: `context` must be a text, or a list with one for each continuation")
    if isinstance(gold, bool) or not isinstance(gold, int) or not 0 <= gold < len(continuations):
        raise TrainerError(f"{where}: `gold` must be the number of the right continuation, counted from 0")
    said = None if context or "messages" not in row else unanswered(row, where)
    return Question(tuple(contexts), tuple(continuations), gold, said)


def _are_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def benchmark(
    directory: Path,
    files: Sequence[Path],
    precision: Precision | Literal["auto"] = "auto",
    output: Path | None = None,
    chat: bool = False,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields for each file of items its name, without the ending, and the `scores` of the exported model in
    `directory`. With `output`, first writes what belongs to a file there: NAME.log_likelihoods.jsonl with
    those of each item, in order, and then NAME.json with the scores. `cut` counts the items of which a
    context is too long and lost tokens from its beginning, or of which a continuation was computed in pieces.
    With `chat`, a context is a message of the user, and a continuation the beginning of its answer.

    Raises TrainerError for a bad file before anything is computed.
    """
    benchmarks = {path.stem: read_items(path) for path in files}
    if len(benchmarks) < len(files):
        raise TrainerError("two of the files have the same name, by which scores are told: rename one")
    if output is not None and output.exists() and not output.is_dir():
        raise TrainerError(f"--output {output}: is a file: name a directory")
    model, tokenizer = hf.load_model(directory), load_tokenizer(directory)
    begin = hf.read_config(directory).get("bos_token_id")
    resolved = resolve_precision(precision, model.device)
    for name, items in benchmarks.items():
        if chat or any(item.messages is not None for item in items):
            form = ChatFormat.of(directory)
            requests = [one for item in items for one in _in_chat(form, item)]
        else:
            requests = _requests(tokenizer, items, begin)
        found = iter(log_likelihoods(model, requests, resolved))
        likelihoods = [[next(found) for _ in item.continuations] for item in items]
        if not all(math.isfinite(one) for row in likelihoods for one in row):
            raise TrainerError(f"{directory}: gives NaN or infinite log-likelihoods on {name}")
        beyond = iter(len(context) + len(asked) > model.max_length + 1 for context, asked in requests)
        cut = sum(sum(next(beyond) for _ in item.continuations) > 0 for item in items)
        result = scores(items, likelihoods) | {"cut": cut, "precision": resolved}
        if lost := _not_given_back(tokenizer, items):
            result |= {"bits_per_byte": None, "not_given_back": lost}
        if output is not None:
            lines = [json.dumps({"log_likelihoods": row}) for row in likelihoods]
            with room_in(output):
                write_atomically(output / f"{name}.log_likelihoods.jsonl", "\n".join(lines) + "\n")
                write_atomically(output / f"{name}.json", json.dumps(result, indent=1))
        yield name, result


def _not_given_back(tokenizer: Any, items: Sequence[Question]) -> float:
    """The share of the right continuations, in bytes, that their tokens do not give back. A space that comes
    before is no loss.
    """
    texts = [item.continuations[item.gold] for item in items]
    ids = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
    found = zip(texts, tokenizer.decode_batch(ids, skip_special_tokens=False), strict=True)
    lost = (text for text, decoded in found if text.strip(" ") != decoded.strip(" "))
    return sum(map(_bytes, lost)) / max(1, sum(map(_bytes, texts)))


def _in_chat(form: ChatFormat, item: Question) -> Iterator[tuple[Tokens, Tokens]]:
    """An item as a conversation. Behind messages an answer is complete: it ends as it was learned to."""
    for context, continuation in zip(item.contexts, item.continuations, strict=True):
        if item.messages is None:
            asked = form.before_answer([("user", context.strip())])
            yield asked, form.text_ids(continuation.strip())
        else:
            yield form.before_answer(item.messages), (*form.text_ids(continuation), form.ids.end)


def _requests(tokenizer: Any, items: Sequence[Question], begin: int | None) -> list[tuple[Tokens, Tokens]]:
    """Contexts and continuations in tokens, encoded apart, as in OLMo's evaluation during training. A context
    is the beginning of a document.
    """
    texts = dict.fromkeys(text for item in items for text in (*item.contexts, *item.continuations))
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    ids = {text: tuple(encoding.ids) for text, encoding in zip(texts, encodings, strict=True)}
    start = () if begin is None else (begin,)
    requests = [
        (start + ids[context], ids[continuation])
        for item in items
        for context, continuation in zip(item.contexts, item.continuations, strict=True)
    ]
    if not all(context for context, _ in requests):
        raise TrainerError(
            "an item has no context, and the model's config.json no bos_token_id to begin with"
        )
    return requests


def scores(items: Sequence[Question], likelihoods: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The scores of a benchmark, from the log-likelihoods of the continuations of each item.

    `accuracy`: how often the right continuation has the largest log-likelihood; `accuracy_per_character` and
    `accuracy_per_byte`: the largest one for each character or UTF-8 byte of the continuation, with its space
    at the beginning (OLMES, Gu et al. 2024, section 3.2). Each has `value`, and `low` and `high`, its Wilson
    interval of 95%. `chance` is the accuracy of a choice by lot. All are None where items have one
    continuation only. `bits_per_byte` is that of the right continuation, the mean over items with its normal
    interval of 95%. `items` counts them.
    """
    answered = list(zip(items, likelihoods, strict=True))
    found: dict[str, Any] = {"items": len(items), "chance": None}
    found |= dict.fromkeys(("accuracy", "accuracy_per_character", "accuracy_per_byte", "bits_per_byte"))
    if all(len(item.continuations) > 1 for item in items):
        found["chance"] = sum(1 / len(item.continuations) for item in items) / len(items)
        for name, sizes in (
            ("accuracy", lambda text: 1),
            ("accuracy_per_character", len),
            ("accuracy_per_byte", _bytes),
        ):
            right = sum(_chosen(item, row, sizes) == item.gold for item, row in answered)
            found[name] = wilson(right, len(items))
    bits = [-row[item.gold] / math.log(2) / _bytes(item.continuations[item.gold]) for item, row in answered]
    found["bits_per_byte"] = of_mean(bits)
    return found


def _bytes(text: str) -> int:
    return len(text.encode())


def _chosen(item: Question, row: Sequence[float], size: Any) -> int:
    """The number of the continuation with the largest log-likelihood for its size, the first of equals."""
    values = [value / size(text) for value, text in zip(row, item.continuations, strict=True)]
    return values.index(max(values))
