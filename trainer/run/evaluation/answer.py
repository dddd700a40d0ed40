"""`python -m trainer answer`: the answers of a model to the conversations of a file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.config import SamplesConfig
from trainer.config.data import ChatIds
from trainer.hf import load_model
from trainer.model.cache import POSITIONS
from trainer.run.evaluation.conversation import ChatFormat
from trainer.run.evaluation.generate import Prompt, generate
from trainer.system.errors import TrainerError


def answered(directory: Path, questions: Path, samples: SamplesConfig) -> Iterator[dict[str, Any]]:
    """The model's answer to each conversation of a file, JSON lines with `messages` of which the last is
    answered: `text`, whether it `stops`, and `unended` if it was cut off after `max_new_tokens`. A
    conversation that fills the context gets an empty text, and `too_long`. Raises TrainerError.
    """
    asked = list(_conversations(questions))
    form = ChatFormat.of(directory)
    model = load_model(directory)
    room = min(model.max_length, POSITIONS[model.device.type])
    prompts = [Prompt(form.before_answer(said), form.kept(*said[0], room)) for said in asked]
    fitting = [number for number, prompt in enumerate(prompts) if len(prompt.tokens) < room]
    written = generate(model, [prompts[number] for number in fitting], samples, form.ends, room=room)
    texts = {fitting[place]: text for place, text in written}
    for number in range(len(asked)):
        if text := texts.get(number):
            cut = {"unended": True} if text.end is None else {}
            yield {"text": form.text(text.tokens), "stops": text.end == form.ids.end, **cut}
        else:
            yield {"text": "", "stops": False, "too_long": True}


def _conversations(path: Path) -> Iterator[list[tuple[str, str]]]:
    """Role and content of the messages in each line of a file. Raises TrainerError with the line."""
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise TrainerError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            said = [(one["role"], one["content"]) for one in json.loads(line)["messages"]]
        except (ValueError, KeyError, TypeError) as error:
            raise TrainerError(f"{path}:{number}: holds no `messages` with role and content") from error
        if not said or not all(role in ChatIds.model_fields and isinstance(text, str) for role, text in said):
            raise TrainerError(f"{path}:{number}: has no message, or one of an unknown role or without text")
        yield said
