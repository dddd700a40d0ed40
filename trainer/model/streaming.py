"""Text of any length, read through a cache of the model's context: StreamingLLM (Xiao et al. 2023, arXiv
2309.17453).
"""

import torch

from trainer.model.cache import KeyValueCache
from trainer.model.llama import Llama

# Attention that finds nothing to read goes to the first tokens of a text. A model without them fails as soon
# as they are dropped; four are enough in the paper.
FIRST = 4
# When the cache is full, this part of what may be dropped is, so that the rest moves seldom.
DROPPED = 8


class Stream:
    """A text that a model reads piece by piece. The first tokens are kept, and of the others the newest; what
    is between them is dropped.

    Positions are those within the cache, which the model knows from its training. What a token sees depends
    on its place in the text and not on how the text was cut into pieces.
    """

    def __init__(self, model: Llama, room: int, first: int = FIRST) -> None:
        """`room` tokens at a time, at most the model's context. `first`: how many first tokens are kept."""
        self._model = model
        self.cache = KeyValueCache(room)
        self.keep(first)

    def keep(self, first: int) -> None:
        """Keeps so many first tokens, but at most half of the room."""
        self._first = min(first, self.cache.room // 2)

    @torch.no_grad()
    def read(self, tokens: torch.Tensor) -> torch.Tensor:
        """Reads the next `tokens` [rows, length], at least one. Returns the final hidden states after the
        last one, [rows, d_model].
        """
        states, at = None, 0
        while states is None or at < tokens.shape[1]:
            if self.cache.length == self.cache.room:
                self._forget()
            end = at + self.cache.room - self.cache.length
            states = self._model(tokens[:, at:end], cache=self.cache)
            at = end
        return states[:, -1]

    def _forget(self) -> None:
        decoder = self._model.model
        count = max(1, (self.cache.room - self._first) // DROPPED)
        self.cache.forget(self._first, count, decoder.cos, decoder.sin)
