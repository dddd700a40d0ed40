"""What a run learns from: the tokenizer and the token shards of each corpus."""

from typing import Self

from pydantic import Field, model_validator

from trainer.config.base import AbsolutePath, Config
from trainer.config.tuning import ChatIds


class CorpusShards(Config):
    """The token shards of one corpus."""

    name: str = Field(min_length=1)
    """Name of the corpus."""
    weight: float = Field(gt=0)
    """Share of the samples, relative to the other corpora."""
    train: list[AbsolutePath] = Field(min_length=1)
    """Shards to train on, by prefix: the path without `.bin` and `.idx`."""
    validation: list[AbsolutePath] = Field(default=[])
    """Shards of held-out text, by prefix."""
    validation_bytes: int = Field(default=0, ge=0)
    """UTF-8 bytes of the held-out text. Needed with `validation`."""
    not_given_back: float = Field(default=0, ge=0, le=1)
    """Share of the held-out text, in bytes, of documents that the tokenizer does not give back: unknown
    words, lower case and the like. Bits per byte are measured only where it is 0.
    """
    content: str | None = Field(default=None, min_length=1)
    """Hash or version of what the shards hold, from whoever made them. When not set, all tokens are read and
    hashed at each start.
    """

    @model_validator(mode="after")
    def _prefixes_name_files(self) -> Self:
        for prefix in (*self.train, *self.validation):
            if not prefix.name:
                raise ValueError(f"{prefix} is not a prefix of a shard: name its path without .bin and .idx")
        return self

    @model_validator(mode="after")
    def _validation_has_bytes(self) -> Self:
        if self.validation and not self.validation_bytes:
            raise ValueError(
                f"corpus {self.name!r} has validation shards: set validation_bytes to the number of UTF-8 "
                "bytes of their text"
            )
        return self


class DataConfig(Config):
    """The tokenizer, and the corpora encoded with it."""

    tokenizer: AbsolutePath
    """Directory with tokenizer.json and tokenizer_config.json."""
    tokenizer_sha256: str
    """Identity of the tokenizer: the SHA-256 of its tokenizer.json."""
    vocab_size: int = Field(ge=1)
    """Entries of the vocabulary."""
    bot_id: int = Field(ge=0)
    """Id of the token at the beginning of every document."""
    eot_id: int = Field(ge=0)
    """Id of the token at the end of every document."""
    chat: ChatIds | None = None
    """Ids of the tokenizer's control tokens. Needed for `objective: sft` and `dpo`."""
    corpora: list[CorpusShards] = Field(min_length=1)
    """The corpora to train on."""

    @model_validator(mode="after")
    def _names_are_unique_and_ids_valid(self) -> Self:
        names = [corpus.name for corpus in self.corpora]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two corpora are named {name!r}: rename one of them")
        chat = {f"chat.{name}": token for name, token in self.chat or ()}
        for key, token in {"bot_id": self.bot_id, "eot_id": self.eot_id, **chat}.items():
            if token >= self.vocab_size:
                raise ValueError(
                    f"{key} {token} is outside the vocabulary of {self.vocab_size}: set it below vocab_size"
                )
        return self
