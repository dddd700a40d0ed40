"""llama.cpp, which reads GGUF files."""

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest


class LlamaCpp:
    """llama.cpp with a GGUF file of so many tokens."""

    def __init__(self, path: Path, vocab_size: int = 0) -> None:
        xllamacpp = pytest.importorskip("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.n_gpu_layers = str(path), 128, 1, 0
        params.verbosity = -1
        self._server, self._vocab_size = xllamacpp.Server(params), vocab_size

    def tokens(self, text: str) -> list[int]:
        content = json.dumps({"content": text, "add_special": True, "parse_special": False}).encode()
        with urlopen(f"{self._server.listening_address}/tokenize", content) as answer:
            return json.load(answer)["tokens"]

    def prompt(self, messages: list[dict[str, Any]], **settings: Any) -> str:
        """The text that its chat template makes. Raises HTTPError for one that it refuses."""
        content = json.dumps({"messages": messages, **settings}).encode()
        with urlopen(f"{self._server.listening_address}/apply-template", content) as answer:
            return str(json.load(answer)["prompt"])

    def answer(self, messages: list[dict[str, str]], tokens: int) -> dict[str, Any]:
        """The likeliest answer to a conversation."""
        settings = {"messages": messages, "max_tokens": tokens, "temperature": 0, "cache_prompt": False}
        found: dict[str, Any] = self._server.handle_chat_completions(settings)
        return found

    def log_probabilities(self, ids: list[int]) -> np.ndarray:
        """Of every token, to come after these."""
        # It says nothing of a token that is no whole character, so it is to choose an "a".
        settings = {"n_predict": 1, "n_probs": self._vocab_size, "logit_bias": [["a", 1000]]}
        answer = self._server.handle_completions({"prompt": ids} | settings)
        found = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        assert len(found) == self._vocab_size
        return np.array([one["logprob"] for one in sorted(found, key=lambda one: one["id"])])

    def ends_after(self, token: int) -> bool:
        """Whether a text is over once it wrote this token."""
        settings = {"n_predict": 2, "logit_bias": [[token, 1000]]}
        return bool(
            self._server.handle_completions({"prompt": [2, 5]} | settings)["choices"][0]["finish_reason"]
            == "stop"
        )
