"""A tuned model beside the one it goes on with: losses, held-out answers, and what it still knows."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from pipeline.recipe.post_training import ANSWER_TOKENS
from pipeline.recipe.recipe import Recipe
from pipeline.sources.formats.unlearnable import FORM, form_error
from pipeline.stages import chat
from pipeline.steps.model import answer_forms
from pipeline.steps.model.held_out_answers import Fits, fitting, of_corpus
from pipeline.steps.training.launcher import run_trainer
from pipeline.store.store import Store
from trainer.config import RunConfig, load_run_config
from trainer.system.durable import read_json

VERSION = "answers-3"
BEFORE, AFTER = "before", "after"  # the names of the models
ASKED = 100  # held-out conversations, in each corpus
CONVERSATIONS_SHOWN = 5
# Why a held-out conversation is not asked.
TOO_LONG, NO_QUESTION = "too_long", "no_question"


@dataclass(frozen=True)
class Question:
    """A held-out conversation up to its last answer, which is `wanted`. `kind` groups questions. `form`, if
    the metadata has one, is a regular expression that answers of the right form match.
    """

    messages: list[dict[str, str]]
    wanted: str
    kind: str
    form: str | None

    @classmethod
    def of(cls, text: str, facts: Mapping[str, Any], corpus: str, fits: Fits = len) -> Self | str:
        """What is asked of a document: its last answer that fits into the context. Where nothing is asked,
        the reason instead. `fits` returns how many messages of a conversation fit.
        """
        said = chat.parsed(text)[0]
        answers = [place for place, (role, _) in enumerate(said) if role == "assistant" and place]
        if not answers:
            return NO_QUESTION
        until = fits(said)
        last = max((place for place in answers if place < until), default=None)
        if last is None:
            return TOO_LONG
        messages = [{"role": role, "content": content} for role, content in said[:last]]
        form = facts.get(FORM)
        usable = isinstance(form, str) and form_error(form) is None
        kind = str(facts.get("kind") or corpus)
        return cls(messages, said[last][1], kind, form if usable else None)


def judged(questions: Sequence[Question], answers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each answer whether it `stops`, has the `form` that is asked for, and is `right`, word for word.
    `form` is None where no form is asked for, or where it takes too long to tell.
    """
    texts = [answer["text"].strip() for answer in answers]
    fits = answer_forms.have_form([(one.form, text) for one, text in zip(questions, texts, strict=True)])
    return [
        {"stops": answer["stops"], "form": fit and answer["stops"], "right": text == question.wanted.strip()}
        for question, answer, text, fit in zip(questions, answers, texts, fits, strict=True)
    ]


def longest(recipe: Recipe) -> int:
    """How many tokens an answer may have."""
    return recipe.tuning.answer_tokens if recipe.tuning else ANSWER_TOKENS


def to_ask(store: Store, recipe: Recipe) -> tuple[list[Question], Counter[str]]:
    """The first ASKED held-out conversations of each corpus, and how many are not asked, by the reason."""
    fraction, fits = recipe.shards.validation_fraction, fitting(store, recipe)
    found = [
        Question.of(text, metadata, name, fits)
        for name in recipe.weights
        for text, metadata in islice(of_corpus(store, name, fraction), ASKED)
    ]
    return [one for one in found if isinstance(one, Question)], Counter(
        one for one in found if isinstance(one, str)
    )


def compared(
    store: Store, recipe: Recipe, run: RunConfig, models: Mapping[str, Path], tuned: Mapping[str, Any]
) -> dict[str, Any]:
    """What `models`, the checkpoints `before` and `after`, make of held-out text. `tuned` is the evaluation
    of `after` on the answers.

    The result has `losses` on the answers and on the text of the pretraining, the shares of answers by
    `kinds`, and some `conversations`. `unended` counts the answers of each model that were cut off after
    `limit` tokens. A model that lacks the control tokens is measured on text alone.
    """
    (questions, left_out), text, limit = to_ask(store, recipe), _pretraining(run), longest(recipe)
    losses: dict[str, dict[str, Any]] = {}
    answers = {}
    for name, checkpoint in models.items():
        losses[name] = {"text": text and _loss(checkpoint, text), "answers": None}
        if read_json(checkpoint / "hf/config.json")["vocab_size"] < run.data.vocab_size:
            continue
        if name == AFTER:
            losses[name]["answers"] = _figures(tuned)
        elif run.training.objective != "dpo":  # whose evaluation says it of the reference, too
            losses[name]["answers"] = _loss(checkpoint, run)
        answers[name] = _answers(checkpoint, questions, limit)
    if reference := (losses[AFTER]["answers"] or {}).get("reference_answer_loss"):
        losses[BEFORE]["answers"] = {"answer_loss": reference}
    judgments = {name: judged(questions, of_model) for name, of_model in answers.items()}
    untold = [
        question.form is not None and any(judgment["form"] is None for judgment in of_models)
        for question, *of_models in zip(questions, *judgments.values(), strict=True)
    ]
    return {
        "asked": len(questions),
        "not_asked": {reason: count for reason, count in left_out.items() if count},
        **({"slow_forms": sum(untold)} if any(untold) else {}),
        "limit": limit,
        "unended": {
            name: sum("unended" in answer for answer in of_model) for name, of_model in answers.items()
        },
        "losses": losses,
        "kinds": list(_by_kind(questions, judgments)),
        "conversations": [
            {
                "messages": question.messages,
                "wanted": question.wanted,
                **{name: of_model[number]["text"] for name, of_model in answers.items()},
            }
            for number, question in _spread(questions)
        ],
    }


def _answers(checkpoint: Path, questions: Sequence[Question], limit: int) -> list[dict[str, Any]]:
    """The answer of a checkpoint to each question, of at most `limit` tokens."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "questions.jsonl"
        lines = (f"{json.dumps({'messages': question.messages})}\n" for question in questions)
        file.write_text("".join(lines), encoding="utf-8")
        answers = run_trainer("answer", f"--model={checkpoint}", f"--max-new-tokens={limit}", str(file))
    return [json.loads(line) for line in answers.splitlines()]


def _pretraining(run: RunConfig) -> RunConfig | None:
    """The run of the pretraining, with its held-out text; None if the model is from elsewhere."""
    while run.training.objective != "pretrain":
        source = run.training.pretrained
        config = source.path.parents[2] / "config.yaml" if source and source.path else None
        if config is None or not config.is_file():
            return None
        run = load_run_config(config)
    return run


def _loss(checkpoint: Path, run: RunConfig) -> dict[str, Any]:
    found = json.loads(
        run_trainer("evaluate", f"--model={checkpoint}", "--config", str(run.run_dir / "config.yaml"))
    )
    return _figures(found)


def _figures(losses: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in losses.items() if isinstance(value, int | float)}


def _by_kind(
    questions: Sequence[Question], judged: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Shares of each kind of question, and of all, for each model: of answers that stop, that have the form
    that is asked for, and that are right.
    """
    kinds = dict.fromkeys(question.kind for question in questions)
    for kind in [*kinds, "all"]:
        rows = [number for number, question in enumerate(questions) if kind in (question.kind, "all")]
        row: dict[str, Any] = {"kind": kind, "asked": len(rows)}
        for name, found in judged.items():
            for what in ("stops", "form", "right"):
                known = [found[number][what] for number in rows if found[number][what] is not None]
                row[f"{what} {name}"] = round(sum(known) / len(known), 3) if known else None
        yield row


def _spread(questions: Sequence[Question]) -> list[tuple[int, Question]]:
    step = max(1, len(questions) // CONVERSATIONS_SHOWN)
    return list(enumerate(questions))[::step][:CONVERSATIONS_SHOWN]
