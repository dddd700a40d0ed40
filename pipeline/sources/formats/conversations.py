"""Conversations and preferences in rows, in the forms that data sets have, as texts of marked messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pipeline.sources.formats.message_tree import best_answers, shown_messages, without_thoughts
from pipeline.sources.formats.messages import (
    Message,
    alike,
    content_of,
    is_alone,
    is_answer,
    joined,
    messages,
    turns,
)
from pipeline.sources.formats.unlearnable import SYSTEM, is_empty, refuse_unlearnable
from pipeline.sources.source import Reason, RefusedError
from pipeline.store.params import CONTENT, MESSAGE, PAIR

VERSION = "conversations-8"
Format = Literal["text", "chat", "preferences"]
LISTS = (("messages",), ("conversations",))
PROMPTED = ("prompt", "completion")
# Columns with a question and its answer, as texts: Alpaca, Dolly, Orca and others.
USUAL = (
    ("prompt", "response"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("question", "answer"),
    ("question", "response"),
    ("query", "response"),
)
_AMBIGUOUS = (
    ("prompt", "answer"),
    ("query", "answer"),
    ("user", "assistant"),
    ("human", "assistant"),
    ("human", "bot"),
    ("input", "output"),
    ("inputs", "targets"),
)
# Names that may mean something else, so they come after all others, and names with capitals.
_CAPITALS = ((one.title(), other.title()) for one, other in (*USUAL, *_AMBIGUOUS))
UNUSUAL = (*_AMBIGUOUS, *_CAPITALS)
ASKED = (*USUAL, *UNUSUAL)
# LMSYS and WildChat, and the exports of Claude and of ChatGPT.
CLAUDE, TREE = ("chat_messages",), ("mapping", "current_node")
OTHER_LISTS = (("conversation",), CLAUDE)
REPLIES = ("message_tree_id", "prompt")  # OpenAssistant, where the prompt has the replies to it
# Open WebUI, UltraChat and others, whose names may mean anything.
UNUSUAL_LISTS = (("chat",), ("dialog",), ("dialogue",), ("turns",), ("items",), ("data",))
CONTENTS, TRANSCRIPT = ("contents",), ("text",)  # Gemini; ChatML, or as in hh-rlhf
PREFERRED = ("input", "preferred_output", "non_preferred_output")  # OpenAI
# Two answers and a column that says which is better: its values for the first and for the second. SHP,
# PKU-SafeRLHF, Chatbot Arena.
COMPARED = {
    ("history", "human_ref_A", "human_ref_B", "labels"): ("1", "0"),
    ("prompt", "response_0", "response_1", "better_response_id"): ("0", "1"),
    ("conversation_a", "conversation_b", "winner"): ("model_a", "model_b"),
}
# UltraFeedback: whether the worse answer is the worst or any other is for the user to say.
RATED = "of the rated `completions`, write two as `chosen` and `rejected` beside the question"
BOTH = (("prompt", "chosen", "rejected"), ("chosen", "rejected"))
# The columns of each form, the first that a row has decides.
FORMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "text": (),
    "chat": (
        *(*LISTS, PROMPTED, *USUAL, *OTHER_LISTS, CONTENTS, TREE, REPLIES),
        *(*UNUSUAL, TRANSCRIPT, *UNUSUAL_LISTS),
    ),
    "preferences": (*BOTH, PREFERRED, *COMPARED),
}
NAMED = {"chat": (*LISTS, PROMPTED), "preferences": BOTH}  # in errors
# Beside an instruction: what it is about, and earlier turns as pairs of texts.
ABOUT, HISTORY = ("input", "context", "Input", "Context"), "history"
# What a pair of answers answers, where no column is called `prompt`.
INSTRUCTIONS = ("question", "instruction")
QUESTIONS = (*INSTRUCTIONS, "conversations")
WORDS_OF_A_QUESTION = 5  # at least, where no mark ends it
# Columns that hold nothing but what is said, so they are no metadata even where another form is read.
OF_TALK = (*(name for form in (*LISTS, *OTHER_LISTS, TREE, PROMPTED) for name in form), "chosen", "rejected")


def columns_of(format: Format) -> tuple[str, ...]:
    """All columns that may be a part of the text."""
    if format == "text":
        return ()
    beside = (*ABOUT, HISTORY, *(QUESTIONS if format == "preferences" else ()))
    return tuple(dict.fromkeys((*(name for form in FORMS[format] for name in form), *SYSTEM, *beside)))


def forms_of(format: Format) -> str:
    """The columns that a row of this format has, in words: the usual ones."""
    return ", or ".join(" and ".join(map(repr, form)) for form in NAMED[format])


def conversation(format: Format, row: dict[str, Any], unread: set[str] | None = None) -> str:
    """The text of a row, as `pipeline.store.params` says. Takes the columns that it is made of out of the
    row. Adds the keys of messages that are not read to `unread`. Raises RefusedError.
    """
    reading = _Row(format, row, set() if unread is None else unread)
    said = reading.pair() if format == "preferences" else [reading.talk()]
    for name in {*OF_TALK} & {*columns_of(format)} | {*reading.used}:
        row.pop(name, None)
    return PAIR.join(map(_text, said))


def _text(said: Sequence[Message]) -> str:
    return "".join(f"{MESSAGE}{role}{CONTENT}{content}" for role, content in said)


class _Row:
    """The row of a conversation. `used`: the columns that it was made of."""

    def __init__(self, format: Format, row: Mapping[str, Any], unread: set[str]):
        self._row, self._unread = row, unread
        held = [form for form in FORMS[format] if all(row.get(name) is not None for name in form)]
        filled = (form for form in held if not any(row[name] in ("", [], {}) for name in form))
        self.used = next(filled, next(iter(held), ()))
        if not self.used:
            remedy = RATED if isinstance(row.get("completions"), list) else "docs/chat.md has more forms"
            raise RefusedError(Reason.NO_MESSAGES, f"no {forms_of(format)} with content; {remedy}")

    def talk(self) -> list[Message]:
        """The conversation of a row of the format `chat`."""
        if self.used in (CLAUDE, TREE, REPLIES):
            said = messages(self.used[0], self._shown(), None, self._unread)
        elif len(self.used) == 1:
            said = self._messages(self.used[0], None)
        elif self.used in ASKED:
            said = [*self._asked(), *self._messages(self.used[1], "assistant")]
        else:
            prompt, completion = self.used
            said = joined(self._messages(prompt, "user"), self._messages(completion, "assistant"))
        refuse_unlearnable(self._row, [place for place, one in enumerate(said) if is_answer(one)])
        if not any(map(is_answer, said)):
            raise RefusedError(Reason.NO_ANSWER, "no message is of the assistant")
        return self._with_system(said)

    def pair(self) -> list[list[Message]]:
        """The better and the worse conversation of `preferences`, which are the same up to an answer."""
        refuse_unlearnable(self._row, ())
        chosen, rejected = map(self._with_system, self._both())
        same = [*map(alike, chosen, rejected)]
        if len(chosen) == len(rejected) and all(same):
            raise RefusedError(Reason.CHOSEN_EQUALS_REJECTED, "'chosen' and 'rejected' are the same")
        common = next((place for place, equal in enumerate(same) if not equal), len(same))
        ends = chosen[common:], rejected[common:]
        if not all(any(map(is_answer, end)) for end in ends):
            raise RefusedError(Reason.NO_ANSWER, "nothing is answered after the common beginning")
        if not common or not all(is_answer(end[0]) for end in ends):
            why = f"message {common + 1} differs, before the answer: both need the same question"
            raise RefusedError(Reason.NO_COMMON_BEGINNING, why)
        return [chosen, [*chosen[:common], *rejected[common:]]]

    def _both(self) -> list[list[Message]]:
        """A prompt stands before both, unless they repeat it."""
        columns = self._better_first()
        if len(columns) == len(BOTH[1]):
            alone = all(is_alone(self._row[name]) for name in columns)
            question = next((name for name in QUESTIONS if not is_empty(self._row.get(name))), None)
            if not alone or question is None:
                return [self._messages(name, None) for name in columns]
            self.used = columns = (question, *columns)
        name, *names = columns
        texts = [self._row[name] for name in columns]
        asked = self._asked() if name in INSTRUCTIONS else self._messages(name, "user")
        answers = _unrepeated(*texts) if all(isinstance(text, str) for text in texts) else texts[1:]
        both = zip(names, answers, strict=True)
        return [joined(asked, messages(name, one, "assistant", self._unread)) for name, one in both]

    def _better_first(self) -> tuple[str, ...]:
        """The columns of both answers, the better one first, after that of the prompt if there is one."""
        if self.used not in COMPARED:
            return self.used
        *asked, first, second, verdict = self.used
        value = str(self._row[verdict]).removesuffix(".0")
        if value not in (better := COMPARED[self.used]):
            why = f"column {verdict!r} is {value!r}, neither {' nor '.join(better)}, so no answer is better"
            raise RefusedError(Reason.CHOSEN_EQUALS_REJECTED, why)
        return (*asked, first, second) if value == better[0] else (*asked, second, first)

    def _asked(self) -> list[Message]:
        """Earlier turns, and the question with what it is about."""
        question = self._messages(self.used[0], "user")
        about = [name for name in ABOUT if name not in self.used and not is_empty(self._row.get(name))]
        texts = [content_of(f"column {name!r}", self._row[name]) for name in about]
        self.used = (*self.used, *ABOUT, HISTORY)
        (role, content), *rest = question
        asked = (role, "\n\n".join(one for one in (content, *texts) if one.strip()))
        return [*turns(HISTORY, self._row.get(HISTORY)), asked, *rest]

    def _shown(self) -> Any:
        values = [self._row[name] for name in self.used]
        if self.used == CLAUDE:
            return without_thoughts(*values)
        return shown_messages(*values) if self.used == TREE else best_answers(values[1])

    def _messages(self, column: str, role: str | None) -> list[Message]:
        return messages(column, self._row[column], role, self._unread)

    def _with_system(self, said: list[Message]) -> list[Message]:
        """The messages after the system message of a column, which the conversation may repeat."""
        names = [name for name in SYSTEM if not is_empty(self._row.get(name))]
        found = [("system", content_of(f"column {name!r}", self._row[name])) for name in names]
        if not found:
            return said
        self.used = (*self.used, *names)
        repeated = said[0][0] == "system"
        others = [*zip(names, found, strict=True)][1:]
        for name, other in [*others, *([("the conversation", said[0])] if repeated else [])]:
            if not alike(found[0], other):
                why = f"the system message of column {names[0]!r} is not that of {name}"
                raise RefusedError(Reason.SYSTEM_DIFFERS, why)
        return said if repeated else [found[0], *said]


def _unrepeated(prompt: str, chosen: str, rejected: str) -> list[str]:
    """The answers without the prompt, if both texts begin with it and more. A greeting is no such prompt:
    answers may begin with it as well.
    """
    asked, answers = prompt.strip(), [chosen.strip(), rejected.strip()]
    both = all(len(answer) > len(asked) and answer.startswith(asked) for answer in answers)
    asks = asked.endswith(("?", ":")) or len(asked.split()) >= WORDS_OF_A_QUESTION
    return [answer[len(asked) :].lstrip() for answer in answers] if both and asks else [chosen, rejected]
