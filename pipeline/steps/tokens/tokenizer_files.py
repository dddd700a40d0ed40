"""The files of a tokenizer, and the vocabulary that they hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

from pipeline.stages import bpe
from pipeline.store.fingerprint import file_sha256
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer: its content and hash, and the tokens that begin and end a document."""

    tokenizer_json: str
    sha256: str
    boundaries: bpe.Boundaries

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Raises TokenizerError if files are missing or name no begin and end of text."""
        names = TOKENIZER, TOKENIZER_CONFIG
        try:
            tokenizer, config = ((directory / name).read_text(encoding="utf-8") for name in names)
        except OSError as error:
            raise bpe.TokenizerError(f"{directory} does not hold {' and '.join(names)}: {error}") from error
        return cls(tokenizer, file_sha256(directory / TOKENIZER), bpe.boundaries(tokenizer, config))


def vocabulary(tokenizer_json: str) -> dict[str, int]:
    """The id of each entry, added tokens included."""
    return Tokenizer.from_str(tokenizer_json).get_vocab(with_added_tokens=True)


def count_entries(vocabulary: Mapping[str, int]) -> int:
    """How many ids there are. Some may have no entry."""
    return 1 + max(vocabulary.values())
