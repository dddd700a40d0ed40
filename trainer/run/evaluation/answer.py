"""`python -m trainer answer`: the answers of a model to the conversations of a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.config import SamplesConfig
from trainer.hf import load_model
from trainer.model.cache import POSITIONS
from trainer.run.evaluation.conversation import ChatFormat
from trainer.run.evaluation.generate import ROWS, Prompt, generate
from trainer.run.evaluation.questions import rows, unanswered


def answered(
    directory: Path, questions: Path, samples: SamplesConfig, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """The model's answer to each conversation of a file, JSON lines with `messages` of which the last is
    answered: `text`, whether it `stops`, and `unended` if it was cut off after `max_new_tokens`. Of a
    conversation that is longer than the context, the model forgets what `chat` forgets. Raises TrainerError.
    """
    asked = [unanswered(row, place) for place, row in rows(questions)]
    form = ChatFormat.of(directory)
    model = load_model(directory)
    room = min(model.max_length, POSITIONS[model.device.type])
    prompts = [Prompt(form.before_answer(said), form.kept(*said[0], room)) for said in asked]
    # The texts that are written at a time are those that stand together, so that answers come meanwhile.
    for first in range(0, len(prompts), ROWS):
        here = prompts[first : first + ROWS]
        texts = dict(generate(model, here, samples, form.ends, seed=seed, room=room))
        for number in range(len(here)):
            text = texts[number]
            cut = {"unended": True} if text.end is None else {}
            yield {"text": form.text(text.tokens), "stops": text.end == form.ids.end, **cut}
