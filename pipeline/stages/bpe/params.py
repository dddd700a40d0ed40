"""A tokenizer to train, or one that exists."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from pipeline.store.errors import PipelineError
from pipeline.store.params import Anchored, Params

ALPHABET_SIZE = 256  # every byte is a token, so any text can be encoded
# The first two are for other programs: no text needs the one, and the trainer does not pad.
SPECIALS = {"unk_token": "[UNK]", "pad_token": "[PAD]", "bos_token": "[BOT]", "eos_token": "[EOT]"}
# What a role in a conversation begins with, and what ends its message. The trainer knows them by these names.
CONTROL = {name: f"[{name.upper()}]" for name in ("system", "user", "assistant", "tool", "end")}
RESERVED = (*CONTROL.values(), *(f"[SPARE_{number}]" for number in range(3)))
# Of a document, against text without spaces, which would be one huge word.
MAX_DOCUMENT_CHARS = 10_000


class TokenizerError(PipelineError):
    """A tokenizer that cannot be used; the message says why."""


class VocabularyError(TokenizerError):
    """A text that supports only so many `entries`, fewer than were asked for."""

    def __init__(self, asked: int, entries: int):
        super().__init__(
            f"tokenizer.vocab_size is {asked}, but the text supports only {entries} entries: "
            f"set it to {entries} or less, or add text"
        )
        self.entries = entries


class TokenizerParams(Params):
    """A byte-level BPE vocabulary and the sample that it is trained on."""

    vocab_size: int = Field(8192, ge=ALPHABET_SIZE + len(SPECIALS), le=1_000_000)
    """Entries of the vocabulary, `[UNK]`, `[PAD]`, `[BOT]` and `[EOT]` included."""
    pattern: Literal["gpt2", "llama3"] = "llama3"
    """Pre-tokenization pattern: no merge crosses its boundaries. `llama3` groups digits by up to three (Llama
    3), `gpt2` groups all digits of a number (GPT-2).
    """
    single_digits: bool = False
    """Whether each digit is a token of its own, as in Qwen 2; with `llama3` only. Helps with arithmetic and
    makes numbers longer.
    """
    sample_bytes: int = Field(1_000_000_000, gt=0, le=10_000_000_000)
    """UTF-8 bytes of text to train on, taken from the corpora in proportion to their size. Each corpus gives
    at least a tenth of what it would give in an even split. At most 10 GB, because pair counts are 32-bit.
    """
    chat: bool | Literal["appended"] = False
    """With `true`, eight entries of the vocabulary are tokens for conversations, so that the model can be
    taught to answer later (docs/chat.md). `appended` is for a model that was pretrained without these tokens:
    five tokens are appended to the recipe's tokenizer.
    """

    @model_validator(mode="after")
    def _llama3_splits_digits(self) -> Self:
        if self.chat is True and self.vocab_size < (least := ALPHABET_SIZE + len(SPECIALS) + len(RESERVED)):
            raise ValueError(f"chat needs a vocab_size of at least {least}: raise it, or leave out chat")
        if self.single_digits and self.pattern != "llama3":
            raise ValueError("single_digits needs pattern llama3: set it, or leave out single_digits")
        return self


class ExistingTokenizer(Anchored):
    """An existing tokenizer, `tokenizer: {from: ...}`, which is copied into the store and frozen."""

    source: str = Field(min_length=1)
    """A tokenizer.json, a directory that holds one, or the name of a model on the Hugging Face hub."""
    revision: str | None = Field(None, min_length=1)
    """Branch, tag or commit on the hub. When not set, the hub's default branch."""
    begin_of_text: str | None = Field(None, min_length=1)
    """Token at the beginning of every document. When not set, `bos_token` of its tokenizer_config.json."""
    end_of_text: str | None = Field(None, min_length=1)
    """Token at the end of every document. When not set, `eos_token` of its tokenizer_config.json."""
    chat: bool = False
    """Whether the tokens for conversations that the tokenizer lacks are added (docs/chat.md)."""

    @model_validator(mode="before")
    @classmethod
    def _source_is_from(cls, values: Any) -> Any:
        if isinstance(values, dict) and "from" in values:
            return {"source" if key == "from" else key: value for key, value in values.items()}
        return values

    @property
    def path(self) -> Path:
        """The path on this machine, if `from` is a path."""
        return self.located(self.source)


# Errors name these as the location, though the user wrote neither.
KINDS = TRAINED, EXISTING = "tokenizer to train", "existing tokenizer"


def _kind(value: Any) -> str:
    existing = isinstance(value, ExistingTokenizer) or (
        isinstance(value, dict) and ("from" in value or "source" in value)
    )
    return EXISTING if existing else TRAINED


TokenizerChoice = Annotated[
    Annotated[TokenizerParams, Tag(TRAINED)] | Annotated[ExistingTokenizer, Tag(EXISTING)],
    Discriminator(_kind),
]
