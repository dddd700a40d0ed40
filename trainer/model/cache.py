"""Keys and values of earlier positions, so that writing and scoring text computes each position once."""

from typing import Self

import torch

from trainer.model.rope import turned_back

# Positions with cached keys and values in one batch: a model of 7b takes 0.5 MB for each.
POSITIONS = {"cpu": 16_384, "cuda": 32_768}
Places = slice | torch.Tensor  # of the next positions: the same in each row, or int64 [rows, 1]


class LayerCache:
    """One layer's keys and values, [rows, kv_heads, room, head_dim], allocated once. The `cache` that it
    belongs to knows how many positions of each row are taken.
    """

    def __init__(self, cache: "KeyValueCache") -> None:
        self._cache = cache
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def extend(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the next positions [rows, kv_heads, length, head_dim]; returns those of all rows up to the
        last one that is taken.

        They count as taken once every layer has stored them.
        """
        rows, length = len(key), key.shape[2]
        if self.keys is None or self.values is None:
            shape = (*key.shape[:2], self._cache.room, key.shape[3])
            self.keys, self.values = key.new_zeros(shape), value.new_zeros(shape)
        places, end = self._cache.places, max(self._cache.lengths) + length
        if isinstance(places, slice):
            self.keys[:, :, places], self.values[:, :, places] = key, value
        else:
            at = torch.arange(rows, device=places.device), slice(None), places[:, 0]
            self.keys[at], self.values[at] = key[:, :, 0], value[:, :, 0]
        return self.keys[:, :, :end], self.values[:, :, :end]


class KeyValueCache:
    """Room for `room` positions in each row, of which the first `lengths` are taken."""

    def __init__(self, room: int, rows: int = 1) -> None:
        self.room, self.lengths, self.layers = room, [0] * rows, list[LayerCache]()
        self.places: Places = slice(0, 0)

    def layer(self, number: int) -> LayerCache:
        if number == len(self.layers):
            self.layers.append(LayerCache(self))
        return self.layers[number]

    def next(self, length: int, device: torch.device) -> tuple[Places, torch.Tensor | None]:
        """Where the next `length` positions are stored, and what each of them sees: all before it, or where
        rows are of unequal length booleans [rows, 1, 1, total]. Such rows read one token at a time.
        """
        longest = max(self.lengths)
        if min(self.lengths) == longest:
            self.places = slice(longest, longest + length)
            return self.places, None
        assert length == 1
        places = torch.tensor(self.lengths, device=device)[:, None]
        self.places = places
        return places, (torch.arange(longest + 1, device=device) <= places)[:, None, None]

    def advance(self, length: int) -> None:
        self.lengths = [taken + length for taken in self.lengths]

    def selected(self, rows: torch.Tensor, room: int) -> Self:
        """A copy of these rows, which may repeat, with room for `room` positions."""
        copy, taken = type(self)(room, len(rows)), max(self.lengths)
        copy.next(taken, rows.device)
        for number, layer in enumerate(self.layers):
            assert layer.keys is not None and layer.values is not None
            copy.layer(number).extend(layer.keys[rows, :, :taken], layer.values[rows, :, :taken])
        copy.lengths = [self.lengths[row] for row in rows.tolist()]
        return copy

    def drop(self, row: int) -> None:
        """Ends a row. The last one takes its number."""
        length = self.lengths[-1]
        self.lengths[row] = length
        self.lengths.pop()
        for layer in self.layers:
            assert layer.keys is not None and layer.values is not None
            for tensor in (layer.keys, layer.values):
                tensor[row, :, :length] = tensor[-1, :, :length]
            layer.keys, layer.values = layer.keys[:-1], layer.values[:-1]

    def forget(self, row: int, start: int, count: int, cos: torch.Tensor, sin: torch.Tensor) -> None:
        """Drops `count` positions of a row from `start` on. Those behind them move up: they keep their
        distances from each other and get nearer to the ones before. `cos` and `sin` are the model's.
        """
        after, end = slice(start + count, self.lengths[row]), self.lengths[row] - count
        for layer in self.layers:
            assert layer.keys is not None and layer.values is not None
            keys, values = layer.keys[row], layer.values[row]
            keys[:, start:end] = turned_back(keys[:, after], cos, sin, count)
            values[:, start:end] = values[:, after].clone()
        self.lengths[row] = end
