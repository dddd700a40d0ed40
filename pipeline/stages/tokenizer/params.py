"""A tokenizer to train, or one that exists."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag, model_validator

from pipeline.store.errors import PipelineError
from pipeline.store.params import Params

ALPHABET_SIZE = 256  # every byte is a token, so any text can be encoded
SPECIALS = 4  # unknown, padding, begin and end of text


class TokenizerError(PipelineError):
    """A tokenizer that cannot be used; the message says what it lacks."""


class VocabularyError(TokenizerError):
    """The text cannot support the vocabulary that was asked for."""


class TokenizerParams(Params):
    """A byte-level BPE vocabulary and the sample that it is trained on."""

    vocab_size: int = Field(
        8192, ge=ALPHABET_SIZE + SPECIALS, description="Entries, special tokens included."
    )
    pattern: Literal["gpt2", "llama3"] = Field(
        "llama3", description="Pre-tokenization pattern: where merges stop."
    )
    single_digits: bool = Field(False, description="Split numbers into digits before merging.")
    unknown: str = "[UNK]"
    padding: str = "[PAD]"
    begin_of_text: str = "[BOT]"
    end_of_text: str = "[EOT]"
    sample_bytes: int = Field(
        1_000_000_000,
        gt=0,
        le=10_000_000_000,
        description="UTF-8 bytes to train on, shared by the corpora in proportion; pair counts are 32-bit, "
        "so at most 10 GB.",
    )
    max_document_chars: int = Field(
        10_000,
        gt=0,
        description="Longer documents are cut for training: text without spaces makes one huge word.",
    )

    @property
    def specials(self) -> list[str]:
        return [self.unknown, self.padding, self.begin_of_text, self.end_of_text]

    @model_validator(mode="after")
    def _specials_differ(self) -> "TokenizerParams":
        if len(set(self.specials)) < SPECIALS:
            raise ValueError(f"the four special tokens must differ, got {self.specials}")
        return self


class ExistingTokenizer(Params):
    """`tokenizer: {from: ...}`: somebody's tokenizer instead of a new one, copied into the store and frozen
    like one that was trained.

    `from` is a tokenizer.json, a directory that holds one, or the name of a model on the hub; `revision` is a
    branch, tag or commit there. Begin and end of text are what its tokenizer_config.json calls bos_token and
    eos_token, unless they are named here.
    """

    source: str = Field(min_length=1, description="`from` in a recipe, which Python does not take as a name.")
    revision: str | None = Field(None, min_length=1)
    begin_of_text: str | None = Field(None, min_length=1)
    end_of_text: str | None = Field(None, min_length=1)
    _directory: Path = PrivateAttr(default_factory=Path)  # private: where it lies is no part of what it is

    @model_validator(mode="before")
    @classmethod
    def _source_is_from(cls, values: Any) -> Any:
        if isinstance(values, dict) and "from" in values:
            return {"source" if key == "from" else key: value for key, value in values.items()}
        return values

    def anchored(self, directory: Path) -> "ExistingTokenizer":
        """The same, with a relative path starting at `directory` instead of the working directory."""
        anchored = self.model_copy()
        anchored._directory = directory
        return anchored

    @property
    def path(self) -> Path:
        """The place on this machine, if `from` is a path at all."""
        return self._directory / Path(self.source).expanduser()


# in the place of an error, where the user wrote nothing like it
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
