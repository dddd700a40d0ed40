"""Encodes texts as documents of token ids."""

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from pipeline.stages.tokenizer.fast import FastEncoder
from pipeline.stages.tokenizer.params import TokenizerError

CHECKED_CHARACTERS = 16_384  # of a long document, for the comparison with `tokenizers`


class MismatchError(Exception):
    """The fast encoder and `tokenizers` gave different ids; the message names the document."""


@dataclass(frozen=True)
class Boundaries:
    """The ids that begin and end each document; a tokenizer may have one token for both."""

    begin: int
    end: int


@lru_cache(maxsize=2)  # called for each corpus
def boundaries(tokenizer_json: str, tokenizer_config: str) -> Boundaries:
    """The ids of the configuration's bos_token and eos_token. Raises TokenizerError if one is missing."""
    tokenizer, config = Tokenizer.from_str(tokenizer_json), json.loads(tokenizer_config)
    found: list[int] = []
    for key, setting in (("bos_token", "begin_of_text"), ("eos_token", "end_of_text")):
        token = config.get(key)
        content = token["content"] if isinstance(token, dict) else token
        if not content:
            raise TokenizerError(f"its configuration has no {key}: name one of its tokens as {setting}")
        number = tokenizer.token_to_id(content)
        if number is None:
            raise TokenizerError(
                f"{content!r} ({key}) is not in its vocabulary: name another token as {setting}"
            )
        found.append(number)
    return Boundaries(*found)


class Encoder:
    """Texts to documents of ids: `begin ... end`. A special token's name inside a text is encoded as plain
    text.

    With `fast`, gigatoken encodes: 200 MB/s and more on one core, `tokenizers` 4. `check` compares the ids of
    the two. `unsupported` says which tokenizers gigatoken cannot encode with.
    """

    def __init__(self, tokenizer_json: str, ends: Boundaries, fast: bool):
        self.ends = ends
        self._reference = Tokenizer.from_str(tokenizer_json)
        self._reference.encode_special_tokens = True
        self._reference.no_truncation()
        self._reference.no_padding()
        self._fast = FastEncoder(tokenizer_json) if fast else None
        self.max_id = max(self._reference.get_vocab(with_added_tokens=True).values())

    @property
    def fast(self) -> bool:
        return self._fast is not None

    def encode(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Flat ids (uint32) of all texts, and the number of ids of each (int64), begin and end included."""
        ids, stops = self._fast.encode(texts) if self._fast else self._encode_by_reference(texts)
        framed = np.empty(len(ids) + 2 * len(stops), np.uint32)
        last = stops + 2 * np.arange(len(stops)) + 1
        first = np.concatenate([np.zeros(1, np.int64), last[:-1] + 1]) if len(last) else last
        framed[first], framed[last] = self.ends.begin, self.ends.end
        inside = np.ones(len(framed), np.bool_)
        inside[first] = inside[last] = False
        framed[inside] = ids
        return framed, last - first + 1

    def check(
        self, document_ids: pa.Array, texts: pa.Array, rows: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Compares the result of `encode(texts)` for `rows` with `tokenizers`. Raises MismatchError.

        The beginning of a long document is encoded again by both.
        """
        stops = np.cumsum(lengths)
        for row in rows:
            text = texts[int(row)].as_py()
            if len(text) <= CHECKED_CHARACTERS:
                given = ids[stops[row] - lengths[row] : stops[row]]
            else:
                text = text[:CHECKED_CHARACTERS]
                given, _ = self.encode(pa.array([text], pa.large_string()))
            if not np.array_equal(given[1:-1], self._reference.encode(text, add_special_tokens=False).ids):
                raise MismatchError(
                    f"document {document_ids[int(row)].as_py()!r}: the ids of the fast encoder differ from "
                    "those of `tokenizers`"
                )

    def _encode_by_reference(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        encodings = self._reference.encode_batch_fast(texts.to_pylist(), add_special_tokens=False)
        stops = np.cumsum(np.fromiter((len(encoding) for encoding in encodings), np.int64, len(encodings)))
        ids = np.empty(int(stops[-1]) if len(stops) else 0, np.uint32)
        for encoding, stop in zip(encodings, stops, strict=True):
            ids[stop - len(encoding) : stop] = encoding.ids
        return ids, stops
