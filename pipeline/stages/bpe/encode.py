"""Encodes texts as token ids: with gigatoken, fifty times faster than `tokenizers`, where ids agree."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from pipeline.stages.bpe.params import CONTROL, TokenizerError

PLAIN_BPE = {
    "dropout": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "byte_fallback": False,
}
CHECKED_CHARACTERS = 16_384  # of a long document, for the comparison with `tokenizers`


class MismatchError(Exception):
    """The fast encoder and `tokenizers` gave different ids; the message names the document."""


class Boundaries(NamedTuple):
    """The ids that begin and end each document. A tokenizer may have one token for both. `control` has the
    ids of the tokens for conversations, by the names in CONTROL. It is empty if the tokenizer lacks one of
    them.
    """

    begin: int
    end: int
    control: Mapping[str, int] = {}


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
    special = {
        token.content: id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special
    }
    control = {name: special[token] for name, token in CONTROL.items() if token in special}
    return Boundaries(found[0], found[1], control if len(control) == len(CONTROL) else {})


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
        self.fast = FastEncoder(tokenizer_json) if fast else None
        self.max_id = max(self._reference.get_vocab(with_added_tokens=True).values())

    def encode(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Flat ids (uint32) of all texts, and the number of ids of each (int64), begin and end included."""
        return self.between(np.full(len(texts), self.ends.begin), texts, self.ends.end)

    def between(self, first: np.ndarray, texts: pa.Array, last: int) -> tuple[np.ndarray, np.ndarray]:
        """As `encode`, with the ids `first` [texts] and `last` in place of begin and end."""
        ids, stops = self.fast.encode(texts) if self.fast else self._encode_by_reference(texts)
        starts = np.concatenate([np.zeros(1, np.int64), stops])[:-1]
        places = np.stack([starts, stops], axis=1).reshape(-1)
        marks = np.stack([first, np.full(len(stops), last)], axis=1).reshape(-1)
        return np.insert(ids, places, marks), stops - starts + 2

    def decode(self, ids: np.ndarray, lengths: np.ndarray) -> list[str]:
        """The texts that ids in the form of `between` are decoded to, without the first and last of each."""
        stops = np.cumsum(lengths)
        encoded = [
            ids[stop - length + 1 : stop - 1].tolist() for stop, length in zip(stops, lengths, strict=True)
        ]
        return self._reference.decode_batch(encoded, skip_special_tokens=False)

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


@lru_cache(maxsize=2)  # called for each corpus
def unsupported(tokenizer_json: str) -> str | None:
    """Why gigatoken cannot encode with this tokenizer; None if it can."""
    import gigatoken  # slow, so only imported where text is encoded, here and below

    settings = json.loads(tokenizer_json)
    reason = _unlike_byte_level_bpe(settings)
    if reason is None:
        try:
            gigatoken.Tokenizer.from_json(_without_specials(settings))
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
    return reason


class FastEncoder:
    """Encodes texts on every core of this process, in a worker process on one. The ids are the same."""

    def __init__(self, tokenizer_json: str):
        import gigatoken

        self._tokenizer = gigatoken.Tokenizer.from_json(_without_specials(json.loads(tokenizer_json)))

    def encode(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Flat ids (uint32), and where those of each text end (int64). The text is not copied."""
        encoded = self._tokenizer.encode_batch(_strings(texts.cast(pa.large_string()))).layout
        return np.asarray(encoded.content.data), np.asarray(encoded.offsets.data)[1:]


def _strings(texts: pa.Array) -> Any:
    """An awkward.Array over the same memory."""
    import awkward
    from awkward.contents import ListOffsetArray, NumpyArray
    from awkward.index import Index64

    _, offsets, data = texts.buffers()
    ends = Index64(np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1])
    content = NumpyArray(
        np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8), parameters={"__array__": "char"}
    )
    return awkward.Array(ListOffsetArray(ends, content, parameters={"__array__": "string"}))


def _without_specials(settings: dict[str, Any]) -> str:
    """The settings without special tokens, because their names are plain text inside documents."""
    return json.dumps({**settings, "added_tokens": []})


def _unlike_byte_level_bpe(settings: dict[str, Any]) -> str | None:
    model, splits = settings["model"], settings["pre_tokenizer"]
    if model["type"] != "BPE" or any(model.get(name) not in (value, "") for name, value in PLAIN_BPE.items()):
        return "it is not a plain byte-level BPE"
    if settings["normalizer"] is not None:
        return f"it normalizes text ({settings['normalizer']['type']})"
    if not all(token["special"] for token in settings["added_tokens"]):
        return "it has added tokens that are not special"
    *before, last = splits["pretokenizers"] if splits and splits["type"] == "Sequence" else [splits]
    # gigatoken ignores any other step instead of refusing it.
    isolated = all(_is_step(step, "Split", behavior="Isolated", invert=False) for step in before)
    if not (isolated and _is_step(last, "ByteLevel", add_prefix_space=False, use_regex=not before)):
        return f"its pre-tokenizer is {splits}"
    return None


def _is_step(step: dict[str, Any] | None, type: str, **settings: Any) -> bool:
    return (
        step is not None
        and step["type"] == type
        and all(step[name] == value for name, value in settings.items())
    )
