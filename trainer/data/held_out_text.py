"""Whether the validation figures of two runs can be compared: they can on the same held-out text."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from trainer.data.shards import Shard, ShardError, bin_path

# UTF-8 bytes, documents and a hash of the token ids; the last two are None where the shards are not on disk.
Facts = tuple[int, int | None, str | None]
Text = TypeVar("Text")


@dataclass(frozen=True)
class HeldOutText:
    """What a run is validated on: the facts of each corpus' text, of which at most `max_tokens` are read, and
    the hash of the tokenizer.
    """

    corpora: dict[str, Facts]
    tokenizer: str
    max_tokens: int | None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """From a run's configuration. Raises KeyError or TypeError if it is not one."""
        data = config["data"]
        corpora = {
            corpus["name"]: _facts(corpus["validation"], corpus["validation_bytes"])
            for corpus in data["corpora"]
            if corpus.get("validation")
        }
        return cls(corpora, data["tokenizer_sha256"], config["training"]["evaluation"].get("max_tokens"))

    def is_same(self, other: Self) -> bool:
        """Whether the text is the same. Under different tokenizers: as many bytes and documents."""
        if self.corpora.keys() != other.corpora.keys() or self.max_tokens != other.max_tokens:
            return False
        compared = 3 if self.tokenizer == other.tokenizer else 2
        return all(facts[:compared] == other.corpora[name][:compared] for name, facts in self.corpora.items())


def letters(texts: Sequence[Text], is_same: Callable[[Text, Text], bool]) -> list[str]:
    """A letter for each of the `texts`; the same text has the same letter."""
    firsts = [next(i for i, one in enumerate(texts) if is_same(one, text)) for text in texts]
    numbers = [sorted(set(firsts)).index(first) for first in firsts]
    return [chr(ord("A") + number) if number < 26 else str(number) for number in numbers]


def _facts(prefixes: Sequence[str], size: int) -> Facts:
    digest, documents = hashlib.sha256(), 0
    try:
        for prefix in map(Path, prefixes):
            documents += Shard(prefix).num_documents
            with bin_path(prefix).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except (OSError, ShardError):
        return size, None, None
    return size, documents, digest.hexdigest()
