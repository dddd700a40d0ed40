"""Text of any length, read through a cache of the model's context: StreamingLLM (Xiao et al. 2023, arXiv
2309.17453).
"""

from collections.abc import Sequence

import torch

from trainer.model.cache import KeyValueCache
from trainer.model.llama import Llama

# Attention that finds nothing to read goes to the first tokens of a text. A model without them fails as soon
# as they are dropped; four are enough in the paper.
FIRST = 4
# When the cache is full, this part of what may be dropped is, so that the rest moves seldom.
DROPPED = 8


class Stream:
    """Texts, one in each row, that a model reads piece by piece. The first tokens of a text are kept, and of
    the others the newest; what is between them is dropped.

    Positions are those within the cache, which the model knows from its training. What a token sees depends
    on its place in the text and not on how the text was cut into pieces.
    """

    def __init__(self, model: Llama, room: int, firsts: Sequence[int] = (FIRST,)) -> None:
        """`room` tokens of each text at a time, at most the model's context. `firsts`: how many first tokens
        of each are kept, but at most half of the room.
        """
        self._model = model
        self.cache = KeyValueCache(room, len(firsts))
        self._firsts = [*firsts]

    def keep(self, first: int) -> None:
        """Keeps so many first tokens of the first text, but at most half of the room."""
        self._firsts[0] = first

    @torch.no_grad()
    def read(self, tokens: torch.Tensor, counts: Sequence[int] | None = None) -> torch.Tensor:
        """Reads the next `tokens` [rows, length], at least one. Returns the final hidden states after the
        last one of each row, [rows, d_model].

        Where texts begin, `counts` says how many tokens of each row are not padding. All rows must then fit
        into the room.
        """
        states, at = None, 0
        while states is None or at < tokens.shape[1]:
            for row, length in enumerate(self.cache.lengths):
                if length == self.cache.room:
                    self._forget(row)
            end = at + self.cache.room - max(self.cache.lengths)
            states = self._model(tokens[:, at:end], cache=self.cache)
            at = end
        if counts is None or min(counts) == tokens.shape[1]:
            return states[:, -1]
        assert self.cache.lengths == [tokens.shape[1]] * len(counts)
        self.cache.lengths = [*counts]  # no token sees the padding, and the next ones are stored over it
        return states[torch.arange(len(counts)), torch.tensor(counts) - 1]

    def drop(self, row: int) -> None:
        """Ends a text. The last row takes its number."""
        self.cache.drop(row)
        self._firsts[row] = self._firsts[-1]
        self._firsts.pop()

    def _forget(self, row: int) -> None:
        decoder, room = self._model.model, self.cache.room
        first = min(self._firsts[row], room // 2)
        self.cache.forget(row, first, max(1, (room - first) // DROPPED), decoder.cos, decoder.sin)
