"""Keys and values of earlier positions, so that writing and scoring text computes each position once."""

from typing import Self

import torch

# Positions with cached keys and values in one batch: a model of 7b takes 0.5 MB for each.
POSITIONS = {"cpu": 16_384, "cuda": 32_768}


class LayerCache:
    """One layer's keys and values, [rows, kv_heads, room, head_dim], allocated once. The first `length`
    positions are taken.
    """

    def __init__(self, room: int) -> None:
        self.room, self.length = room, 0
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def extend(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the next positions [rows, kv_heads, length, head_dim]; returns all that are taken."""
        if self.keys is None or self.values is None:
            shape = (*key.shape[:2], self.room, key.shape[3])
            self.keys, self.values = key.new_empty(shape), value.new_empty(shape)
        end = self.length + key.shape[2]
        self.keys[:, :, self.length : end], self.values[:, :, self.length : end] = key, value
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class KeyValueCache:
    """Room for `room` positions in each row. All rows advance together."""

    def __init__(self, room: int) -> None:
        self.room, self.layers = room, list[LayerCache]()

    @property
    def length(self) -> int:
        """How many positions are taken."""
        return self.layers[-1].length if self.layers else 0

    def layer(self, number: int) -> LayerCache:
        if number == len(self.layers):
            self.layers.append(LayerCache(self.room))
        return self.layers[number]

    def selected(self, rows: torch.Tensor, room: int) -> Self:
        """A copy of these rows, which may repeat, with room for `room` positions."""
        copy = type(self)(room)
        for number, layer in enumerate(self.layers):
            assert layer.keys is not None and layer.values is not None
            keys, values = (tensor[rows, :, : layer.length] for tensor in (layer.keys, layer.values))
            copy.layer(number).extend(keys, values)
        return copy
