"""Whether the validation figures of two runs can be compared: they can on the same held-out text."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from trainer.data.shards import Shard, ShardError, bin_path


@dataclass(frozen=True)
class CorpusText:
    """Held-out text of a corpus. `documents` and `tokens`, a hash of the token ids, are None where the shards
    are not on disk.
    """

    bytes: int
    documents: int | None
    tokens: str | None


@dataclass(frozen=True)
class HeldOutText:
    """What a run is validated on: text by corpus, of which at most `max_tokens` are read, and the hash of the
    tokenizer.
    """

    corpora: dict[str, CorpusText]
    tokenizer: str
    max_tokens: int | None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """From a run's configuration. Raises KeyError or TypeError if it is not one."""
        data = config["data"]
        corpora = {
            corpus["name"]: _text(corpus["validation"], corpus["validation_bytes"])
            for corpus in data["corpora"]
            if corpus.get("validation")
        }
        return cls(corpora, data["tokenizer_sha256"], config["training"]["evaluation"].get("max_tokens"))

    def is_same(self, other: Self) -> bool:
        """Whether the text is the same. Under different tokenizers: as many bytes and documents."""
        if self.corpora.keys() != other.corpora.keys() or self.max_tokens != other.max_tokens:
            return False
        if self.tokenizer == other.tokenizer:
            return self.corpora == other.corpora
        return all(
            (text.bytes, text.documents) == (other.corpora[name].bytes, other.corpora[name].documents)
            for name, text in self.corpora.items()
        )

    def __str__(self) -> str:
        size = f"{sum(text.bytes for text in self.corpora.values()):,} bytes of {', '.join(self.corpora)}"
        return size if self.max_tokens is None else f"up to {self.max_tokens:,} tokens from {size}"


def letters(texts: Sequence[HeldOutText]) -> list[str]:
    """A letter for each of the `texts`; the same text has the same letter."""
    different: list[HeldOutText] = []
    found = []
    for text in texts:
        known = next((i for i, one in enumerate(different) if one.is_same(text)), None)
        if known is None:
            known = len(different)
            different.append(text)
        found.append(chr(ord("A") + known) if known < 26 else str(known))
    return found


def _text(prefixes: Sequence[str], size: int) -> CorpusText:
    digest, documents = hashlib.sha256(), 0
    try:
        for prefix in map(Path, prefixes):
            documents += Shard(prefix).num_documents
            with bin_path(prefix).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except (OSError, ShardError):
        return CorpusText(size, None, None)
    return CorpusText(size, documents, digest.hexdigest())
