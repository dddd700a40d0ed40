"""gigatoken, about fifty times as fast as `tokenizers`, for vocabularies where the ids are the same."""

import json
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

PLAIN_BPE = {
    "dropout": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "byte_fallback": False,
}


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
    """Encodes texts on every core that this process may use, in a worker process on one. The ids are the
    same.
    """

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
        return f"it normalises text ({settings['normalizer']['type']})"
    if not all(token["special"] for token in settings["added_tokens"]):
        return "it has added tokens that are not special"
    *before, last = splits["pretokenizers"] if splits and splits["type"] == "Sequence" else [splits]
    # gigatoken ignores any other step instead of refusing it.
    isolated = all(_is(step, "Split", behavior="Isolated", invert=False) for step in before)
    if not (isolated and _is(last, "ByteLevel", add_prefix_space=False, use_regex=not before)):
        return f"its pre-tokenizer is {splits}"
    return None


def _is(step: dict[str, Any] | None, type: str, **settings: Any) -> bool:
    return (
        step is not None
        and step["type"] == type
        and all(step[name] == value for name, value in settings.items())
    )
