"""Keys and values of earlier positions, so that writing and scoring text computes each position once."""

from typing import Self

import torch

# Positions with cached keys and values in one batch: a model of 7b takes 0.5 MB for each.
POSITIONS = {"cpu": 16_384, "cuda": 32_768}


class LayerCache:
    """One layer's keys and values, [rows, kv_heads, room, head_dim], allocated once.

    `at`: the positions that come next, a slice for all rows or, for one position in each row, int64 [rows].
    `end`: how many positions are read.
    """

    def __init__(self, room: int) -> None:
        self.room, self.end = room, 0
        self.at: slice | torch.Tensor = slice(0, 0)
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def extend(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the next positions [rows, kv_heads, length, head_dim]; returns all that are read."""
        if self.keys is None or self.values is None:
            # Zeros, because a hidden position still takes part in products, with weight zero.
            shape = (*key.shape[:2], self.room, key.shape[3])
            self.keys, self.values = key.new_zeros(shape), value.new_zeros(shape)
        if isinstance(self.at, slice):
            self.keys[:, :, self.at], self.values[:, :, self.at] = key, value
        else:
            rows = torch.arange(len(key), device=key.device)
            self.keys[rows, :, self.at], self.values[rows, :, self.at] = key[:, :, 0], value[:, :, 0]
        return self.keys[:, :, : self.end], self.values[:, :, : self.end]


class Cache:
    """Room for `room` positions in each row, of which the first `length` are taken. All rows advance
    together.
    """

    def __init__(self, room: int) -> None:
        self.room, self.length, self.layers = room, 0, list[LayerCache]()

    def layer(self, number: int, length: int) -> LayerCache:
        """The part of a layer, ready for the next `length` positions."""
        if number == len(self.layers):
            self.layers.append(LayerCache(self.room))
        found = self.layers[number]
        found.at, found.end = slice(self.length, self.length + length), self.length + length
        return found

    def angles(self, cos: torch.Tensor, sin: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Those of the next `length` positions, from tables [positions, head_dim]."""
        return cos[self.length : self.length + length], sin[self.length : self.length + length]

    def mask(self) -> torch.Tensor | None:
        """What the next positions may attend to; None: everything before."""
        return None

    def advance(self, length: int) -> None:
        self.length += length

    def selected(self, rows: torch.Tensor, room: int) -> Self:
        """A copy of these rows, which may repeat, with room for `room` positions."""
        copy = type(self)(room)
        copy.length = self.length
        for number, layer in enumerate(self.layers):
            assert layer.keys is not None and layer.values is not None
            keys, values = (tensor[rows, :, : self.length] for tensor in (layer.keys, layer.values))
            copy.layers.append(LayerCache(room))
            copy.layers[number].at, copy.layers[number].end = slice(0, self.length), self.length
            copy.layers[number].extend(keys, values)
        return copy


class RowsCache(Cache):
    """Rows with positions of their own, each of which advances by one token at a time.

    `places` int64 [rows]: the next position of each row. With `compiled`, blocks see one shape from the first
    token to the last: they read all of the room, and the model calls their compiled form.
    """

    def __init__(self, rows: list[Cache], room: int, compiled: bool) -> None:
        super().__init__(room)
        self.compiled, self._longest = compiled, max(row.length for row in rows)
        for number, first in enumerate(rows[0].layers):
            assert first.keys is not None and first.values is not None
            self.layers.append(whole := LayerCache(room))
            shape = (len(rows), first.keys.shape[1], room, first.keys.shape[3])
            whole.keys, whole.values = first.keys.new_zeros(shape), first.values.new_zeros(shape)
            for place, row in enumerate(rows):
                one = row.layers[number]
                assert one.keys is not None and one.values is not None
                whole.keys[place, :, : row.length] = one.keys[0, :, : row.length]
                whole.values[place, :, : row.length] = one.values[0, :, : row.length]
        assert rows[0].layers[0].keys is not None
        self.places = torch.tensor([row.length for row in rows]).to(rows[0].layers[0].keys.device)

    @property
    def read(self) -> int:
        """How many positions the next token may attend to, hidden ones included."""
        return self.room if self.compiled else min(self._longest + 1, self.room)

    def layer(self, number: int, length: int) -> LayerCache:
        found = self.layers[number]
        found.at, found.end = self.places, self.read
        return found

    def angles(self, cos: torch.Tensor, sin: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        return cos[self.places, None], sin[self.places, None]

    def mask(self) -> torch.Tensor | None:
        positions = torch.arange(self.read, device=self.places.device)
        return (positions <= self.places[:, None])[:, None, None]

    def advance(self, length: int) -> None:
        # A row that is full has ended: what it computes is not read.
        self.places = (self.places + length).clamp(max=self.room - 1)
        self._longest += length
