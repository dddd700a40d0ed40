"""A tokenizer to train, or one that exists."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from pipeline.store.errors import PipelineError
from pipeline.store.params import MOST, Anchored, Params

ALPHABET_SIZE = 256  # every byte is a token, so any text can be encoded
SPECIALS = 4  # unknown, padding, begin and end of text


class TokenizerError(PipelineError):
    """A tokenizer that cannot be used; the message says why."""


class VocabularyError(TokenizerError):
    """The text is too small for the requested vocabulary."""


class TokenizerParams(Params):
    """A byte-level BPE vocabulary and the sample that it is trained on."""

    vocab_size: int = Field(
        8192,
        ge=ALPHABET_SIZE + SPECIALS,
        le=1_000_000,
        description="Entries of the vocabulary, the 4 special tokens included.",
    )
    pattern: Literal["gpt2", "llama3"] = Field(
        "llama3",
        description="Pre-tokenization pattern: no merge crosses its boundaries. `llama3` groups digits by "
        "up to three (Llama 3), `gpt2` groups all digits of a number (GPT-2).",
    )
    single_digits: bool = Field(
        False,
        description="Whether each digit is a token of its own, as in Qwen 2. Helps with arithmetic and "
        "makes numbers longer.",
    )
    unknown: str = Field(
        "[UNK]", description="Special token for unknown input. A byte-level vocabulary never produces it."
    )
    padding: str = Field(
        "[PAD]",
        description="Padding token, for other programs that open the tokenizer; the trainer does not use it.",
    )
    begin_of_text: str = Field("[BOT]", description="Special token at the beginning of every document.")
    end_of_text: str = Field("[EOT]", description="Special token at the end of every document.")
    sample_bytes: int = Field(
        1_000_000_000,
        gt=0,
        le=10_000_000_000,
        description="UTF-8 bytes of text to train on, taken from the corpora in proportion to their size, "
        "from each at least a tenth of an even split. At most 10 GB, because pair counts are 32-bit.",
    )
    max_document_chars: int = Field(
        10_000,
        gt=0,
        le=MOST,
        description="Characters of a document that the training of the tokenizer reads. Protects against "
        "text without spaces, which would be one huge word.",
    )

    @property
    def specials(self) -> list[str]:
        return [self.unknown, self.padding, self.begin_of_text, self.end_of_text]

    @model_validator(mode="after")
    def _specials_differ(self) -> "TokenizerParams":
        if len(set(self.specials)) < SPECIALS:
            raise ValueError(f"the four special tokens must differ, got {self.specials}")
        return self


class ExistingTokenizer(Anchored):
    """An existing tokenizer, `tokenizer: {from: ...}`, which is copied into the store and frozen."""

    source: str = Field(
        min_length=1,
        description="A tokenizer.json, a directory that holds one, or the name of a model on the Hugging "
        "Face hub.",
    )
    revision: str | None = Field(
        None,
        min_length=1,
        description="Branch, tag or commit on the hub. When not set, the hub's default branch.",
    )
    begin_of_text: str | None = Field(
        None,
        min_length=1,
        description="Token at the beginning of every document. When not set, `bos_token` of "
        "its tokenizer_config.json.",
    )
    end_of_text: str | None = Field(
        None,
        min_length=1,
        description="Token at the end of every document. When not set, `eos_token` of "
        "its tokenizer_config.json.",
    )

    @model_validator(mode="before")
    @classmethod
    def _source_is_from(cls, values: Any) -> Any:
        if isinstance(values, dict) and "from" in values:
            return {"source" if key == "from" else key: value for key, value in values.items()}
        return values

    @property
    def path(self) -> Path:
        """The path on this machine, if `from` is a path."""
        return self._directory / Path(self.source).expanduser()


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
