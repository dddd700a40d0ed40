"""A conversation with a model: the prompt of each turn, and its answer as it is written."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from trainer.config import ChatIds, SamplesConfig
from trainer.config.hugging_face import end_ids
from trainer.config.peft import adapter_of
from trainer.hf.tokenizer import begin_of_text, load_for_messages
from trainer.model.cache import POSITIONS
from trainer.model.llama import Llama
from trainer.model.precision import autocast
from trainer.model.streaming import FIRST, Stream
from trainer.run.evaluation.generate import next_tokens, writing_precision
from trainer.system.errors import TrainerError

log = logging.getLogger("trainer")

UNFINISHED = "\ufffd"  # what the bytes of half a character are decoded to


@dataclass(frozen=True)
class ChatFormat:
    """How a tokenizer writes conversations. Special strings in a message are text. `ends_of_text`: what else
    ends what the model writes; with `[END]` among them, it has learned to answer.
    """

    tokenizer: Tokenizer
    begin: int
    ids: ChatIds
    ends_of_text: frozenset[int] = frozenset()

    @classmethod
    def of(cls, directory: Path) -> "ChatFormat":
        """The format of a model's directory. Warns of a model that has not learned to answer: neither it nor
        an adapter's base ends texts with `[END]`, nor has the adapter learned that token. Raises TrainerError
        for one whose tokenizer cannot tell who speaks.
        """
        tokenizer = load_for_messages(directory)
        control = {name: tokenizer.token_to_id(f"[{name.upper()}]") for name in ChatIds.model_fields}
        begin = tokenizer.token_to_id(begin_of_text(directory))
        if begin is None or None in control.values():
            raise TrainerError(
                f"{directory}: its tokenizer has no control tokens such as [USER], so the model knows no "
                "conversations: take a model of the job `sft` (docs/chat.md)"
            )
        form = cls(tokenizer, begin, ChatIds.model_validate(control), end_ids(directory))
        adapter = adapter_of(directory)
        learned = adapter.tokens("model.embed_tokens") if adapter else ()
        if form.ends_of_text and form.ids.end not in {*form.ends_of_text, *learned}:
            log.warning(
                f"{directory}: has not learned to answer, and continues text instead: take a model of the "
                "job `sft` (docs/chat.md)"
            )
        return form

    def text_ids(self, content: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(content, add_special_tokens=False).ids)

    def message(self, role: str, content: str) -> list[int]:
        return [getattr(self.ids, role), *self.text_ids(content), self.ids.end]

    def before_answer(self, messages: Iterable[tuple[str, str]]) -> tuple[int, ...]:
        """A conversation, given by role and content of each message, up to the answer that comes next."""
        said = [token for role, content in messages for token in self.message(role, content)]
        return (self.begin, *said, self.ids.assistant)

    def kept(self, role: str, content: str, room: int) -> int:
        """How many tokens of a conversation that begins with this message are never forgotten. These are the
        tokens of the instructions, if they take at most half of the room.
        """
        size = 1 + len(self.message(role, content))
        return max(FIRST, size) if role == "system" and size <= room // 2 else FIRST

    @property
    def ends(self) -> frozenset[int]:
        """The control tokens and what ends any text: an answer ends before the first of them."""
        return frozenset((*self.ids.model_dump().values(), self.begin, *self.ends_of_text))

    def text(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


class Conversation:
    """Turns with one model, as many as are wanted. What was said stays in the cache, so that each turn
    computes its own tokens. When the cache is full, the model forgets the oldest of it, but not the
    instructions that the conversation begins with, if they take at most half of the cache.

    `stopped`: whether the model ended its last answer itself.
    """

    def __init__(self, model: Llama, form: ChatFormat, samples: SamplesConfig, system: str = ""):
        self._model, self._form, self._samples, self._system = model, form, samples, system
        self._generator = torch.Generator().manual_seed(0)
        self.reset()

    def another(self) -> "Conversation":
        """A new conversation with the same model and instructions."""
        return Conversation(self._model, self._form, self._samples, self._system)

    def reset(self) -> None:
        """Forgets what was said, but not the instructions that it began with."""
        room = min(self._model.max_length, POSITIONS[self._model.device.type])
        self.stream, self._unread, self.stopped = Stream(self._model, room), [self._form.begin], False
        if self._system:
            self.read("system", self._system)

    def read(self, role: str, content: str) -> None:
        """Takes a message as said."""
        if self._unread == [self._form.begin]:
            self.stream.keep(self._form.kept(role, content, self.stream.cache.room))
        self._unread += self._form.message(role, content)

    def answer(self, said: str, role: str = "user") -> Iterator[str]:
        """Yields the answer to a message in pieces of whole characters. The caller may leave it before its
        end.
        """
        self.read(role, said)
        self._unread.append(self._form.ids.assistant)
        written, shown, self.stopped = list[int](), 0, False
        ends = self._form.ends
        try:
            for _ in range(self._samples.max_new_tokens):
                token = self._next()
                if token in ends:
                    self.stopped = token == self._form.ids.end
                    break
                self._unread = [token]
                written.append(token)
                text = self._form.text(written)
                if not text.endswith(UNFINISHED):
                    yield text[shown:]
                    shown = len(text)
            yield self._form.text(written)[shown:]
        finally:
            self._unread.append(self._form.ids.end)

    @torch.no_grad()
    def _next(self) -> int:
        """Reads what is unread and draws the next token."""
        device, unread, self._unread = self._model.device, self._unread, []
        with autocast(writing_precision(device), device):
            (token,) = next_tokens(self._model, self.stream, [unread], self._samples, [self._generator])
        return token
