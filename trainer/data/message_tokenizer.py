"""A tokenizer as it encodes a message, which never begins a text: the token of its role comes before it."""

import json
from typing import Any


def for_messages(tokenizer_json: str) -> str:
    """The settings of a tokenizer that encodes a message by itself as in the text of a conversation.

    A `Metaspace` whose `prepend_scheme` is `first` puts a space before the first word of a text only, so it
    puts none before a message.
    """
    settings = json.loads(tokenizer_json)
    found = _metaspaces(settings.get("pre_tokenizer"))
    if not found:
        return tokenizer_json
    for one in found:
        one["prepend_scheme"] = "never"
    return json.dumps(settings)


def _metaspaces(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps of a pre-tokenizer that treat the beginning of a text otherwise than what follows."""
    if step is None:
        return []
    if step["type"] == "Sequence":
        return [found for one in step["pretokenizers"] for found in _metaspaces(one)]
    return [step] if step["type"] == "Metaspace" and step.get("prepend_scheme") == "first" else []
