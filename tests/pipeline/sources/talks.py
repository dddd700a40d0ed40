"""Random rows of conversations and preferences in all forms of data sets: whole, marked and broken."""

import json
import random
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
# What none of the answers to be learned says.
NOT_TO_BE_LEARNED = "never"
TEXTS = ("", " ", "Hi.", " Hi. ", "Two\n\nparagraphs", "é 🙂 中文", "[USER] text", "a\x1eb", "x" * 900)
ROLES = {
    "role": (("user", "assistant", "system"), ("User", "model", "developer"), ("user", "narrator", "tool")),
    "from": (
        ("human", "gpt", "system"),
        ("user", "chatgpt", "observation"),
        ("human", "function_call", "tool"),
    ),
}
MARKS: dict[str, tuple[Any, Any]] = {
    "loss": (True, False),
    "weight": (1, 0),
    "train": ("yes", "no"),
    "trainable": (1.0, 0.0),
    "masked": (False, True),
}
COLUMN_MARKS: dict[str, tuple[Any, Any]] = {
    "label": (True, False),
    "is_good": ("true", "false"),
    "weight": (1.0, 0.0),
    "deleted": (None, True),
}


class Talks:
    """The rows of one file: what is drawn for it alone is the form and the types of its columns."""

    def __init__(self, seed: int, format: str):
        self._chosen = random.Random(seed)
        draw = self._chosen.choice
        self._key = draw(("role", "from"))
        self._content = draw(("content", "value")) if self._key == "role" else "value"
        self._roles = draw(ROLES[self._key])
        self._parts = draw((False, False, True))
        self._mark = draw((None, *MARKS))
        self._column = draw((None, None, *COLUMN_MARKS))
        self._beside = draw((None, "system", "images", "image", "tools", "form", "system_prompt"))
        forms: dict[str, Callable[[], Row]] = {
            "chat": draw(
                (self._list, self._list, self._json, self._columns, self._texts, self._alpaca, self._both)
            ),
            "preferences": draw((self._pair_of_texts, self._pair_of_lists, self._transcripts)),
        }
        self._form = forms[format]

    def rows(self, count: int, begin: int) -> list[Row]:
        return [{"id": f"row-{begin + n}", **self._form(), **self._beside_it()} for n in range(count)]

    def _beside_it(self) -> Row:
        draw = self._chosen.choice
        found: Row = {}
        if self._column:
            found[self._column] = draw((None, *COLUMN_MARKS[self._column], COLUMN_MARKS[self._column][0]))
        values = {
            "system": (None, "", "Be brief.", "system"),
            "system_prompt": (None, "Be brief."),
            "images": (None, [], [{"path": "a.png"}]),
            "image": (None, "", "a.png"),
            "tools": (None, [], [{"name": "add"}]),
            "form": (None, ".*", "(", "sonnet"),
        }
        return found | ({self._beside: draw(values[self._beside])} if self._beside else {})

    def _text(self) -> str:
        common = self._chosen.random() < 0.9
        return f"Word {self._chosen.randrange(10**6)}." if common else self._chosen.choice(TEXTS)

    def _message(self, role: str) -> Row:
        text: Any = self._text()
        marks: Row = {}
        if self._mark:
            yes, no = MARKS[self._mark]
            marks[self._mark] = self._chosen.choice((None, yes, yes, no))
            if marks[self._mark] is not None and marks[self._mark] == no and role == self._roles[1]:
                text += NOT_TO_BE_LEARNED
        if self._parts:
            kinds = ("text", "text", "text", "text", "image")
            text = [{"type": self._chosen.choice(kinds), "text": one} for one in (text, self._text())]
        if self._chosen.random() < 0.02:
            text = None
        extra = {"name": "Ann"} if self._chosen.random() < 0.1 else {}
        if self._chosen.random() < 0.03:
            extra["reasoning_content"] = "Hm."
        return {self._key: role, self._content: text, **marks, **extra}

    def _talk(self) -> list[Row]:
        user, assistant, other = self._roles
        turns = [user, assistant] * self._chosen.randint(0, 3)
        if self._chosen.random() < 0.3:
            turns.insert(self._chosen.randint(0, len(turns)), self._chosen.choice((other, user, assistant)))
        return [self._message(role) for role in turns]

    def _list(self) -> Row:
        return {self._chosen.choice(("messages", "messages", "conversations")): self._talk()}

    def _json(self) -> Row:
        text = json.dumps(self._talk())
        return {
            "messages": text if self._chosen.random() < 0.9 else self._chosen.choice((text[:-1], "Hi", "{}"))
        }

    def _columns(self) -> Row:
        talk = [{"role": "user", "content": self._text()}, {"role": "assistant", "content": self._text()}]
        lists = {key: [one[key] for one in talk] for key in ("role", "content")}
        if self._chosen.random() < 0.1:
            lists["content"].pop()
        return {"messages": lists}

    def _texts(self) -> Row:
        return {"prompt": self._text(), "completion": self._text()}

    def _both(self) -> Row:
        return {"messages": self._chosen.choice((None, [])), **self._texts()}

    def _alpaca(self) -> Row:
        names = self._chosen.choice((("input", "output"), ("context", "response")))
        about = self._text() if self._chosen.random() < 0.5 else ""
        return {"instruction": self._text(), names[0]: about, names[1]: self._text()}

    def _pair_of_texts(self) -> Row:
        prompt, chosen = self._text(), self._text()
        rejected = self._chosen.choice((self._text(), self._text(), chosen, f"{chosen} "))
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}

    def _pair_of_lists(self) -> Row:
        user, assistant, _ = self._roles
        asked = [self._message(user)]
        again = self._chosen.choice(([], asked, [{**asked[0], self._content: "Another?"}]))
        if self._parts:
            again = []
        both = {name: [*again, self._message(assistant)] for name in ("chosen", "rejected")}
        return {"prompt": asked, **both}

    def _transcripts(self) -> Row:
        begin = f"\n\nHuman: {self._text()}\n\nAssistant:"
        more = {"prompt": begin} if self._chosen.random() < 0.3 else {}
        return {**more, "chosen": f"{begin} {self._text()}", "rejected": f"{begin} {self._text()}"}


def files(format: str, seed: int, count: int, each: int) -> list[list[Row]]:
    """So many rows, in files of `each`."""
    return [Talks(seed + begin, format).rows(each, begin) for begin in range(0, count, each)]
