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
        last one of each row, [rows, d_model]. Of one long text, leaves out what these do not depend on.

        Where texts begin, `counts` says how many tokens of each row are not padding. All rows must then fit
        into the room.
        """
        states, at = None, 0
        if len(tokens) == 1:
            tokens, counts = self._reached(tokens), None
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

    def _reached(self, tokens: torch.Tensor) -> torch.Tensor:
        """The next tokens of a single text without those that nothing later depends on: a layer sees `room`
        tokens back, and through it the layer above as many more. The first ones of the text stay. As many
        whole moves of the cache are left out as fit, so that the others stay where they would be in it.
        """
        first, dropped = self._kept_and_dropped(0)
        begin = max(0, first - self.cache.lengths[0])
        reached = (self._model.config.n_layers + 1) * self.cache.room
        unseen = max(0, tokens.shape[1] - begin - reached) // dropped * dropped
        return torch.cat([tokens[:, :begin], tokens[:, begin + unseen :]], dim=1) if unseen else tokens

    def _forget(self, row: int) -> None:
        decoder = self._model.model
        self.cache.forget(row, *self._kept_and_dropped(row), decoder.cos, decoder.sin)

    def _kept_and_dropped(self, row: int) -> tuple[int, int]:
        """How many first tokens of a text are kept, and how many after them are dropped at a time."""
        first = min(self._firsts[row], self.cache.room // 2)
        return first, max(1, (self.cache.room - first) // DROPPED)
