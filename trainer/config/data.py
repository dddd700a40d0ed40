"""What a run learns from: the tokenizer and the token shards of each corpus."""

from typing import Self

from pydantic import Field, model_validator

from trainer.config.base import Config, Place


class CorpusShards(Config):
    """The token shards of one corpus, by prefix. `weight` is its share of the samples; `validation_bytes` the
    UTF-8 bytes of its held-out text.

    `content` names what is in the shards, as whoever made them knows it. Without it, all tokens are read and
    hashed at each start.
    """

    name: str = Field(min_length=1)
    weight: float = Field(gt=0)
    train: list[Place] = Field(min_length=1)
    validation: list[Place] = Field(default=[])
    validation_bytes: int = Field(default=0, ge=0)
    content: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _validation_has_bytes(self) -> Self:
        if self.validation and not self.validation_bytes:
            raise ValueError(
                f"corpus {self.name!r} has validation shards: set validation_bytes, the UTF-8 bytes of their "
                "text"
            )
        return self


class DataConfig(Config):
    """The tokenizer (a directory with tokenizer.json and tokenizer_config.json), its identity, and the
    corpora encoded with it.
    """

    tokenizer: Place
    tokenizer_sha256: str
    vocab_size: int = Field(ge=1)
    bot_id: int = Field(ge=0)
    eot_id: int = Field(ge=0)
    corpora: list[CorpusShards] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique_and_ids_known(self) -> Self:
        names = [corpus.name for corpus in self.corpora]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two corpora are called {name!r}")
        for key, token in (("bot_id", self.bot_id), ("eot_id", self.eot_id)):
            if token >= self.vocab_size:
                raise ValueError(f"{key} {token} is outside the vocabulary of {self.vocab_size}")
        return self
