"""Keys and values of earlier positions, so that writing and scoring text computes each position once."""

from typing import Self

import torch

from trainer.model.rope import turned_back

# Positions with cached keys and values in one batch: a model of 7b takes 0.5 MB for each.
POSITIONS = {"cpu": 16_384, "cuda": 32_768}


class LayerCache:
    """One layer's keys and values, [rows, kv_heads, room, head_dim], allocated once. The first `length`
    positions of the `cache` that it belongs to are taken.
    """

    def __init__(self, cache: "KeyValueCache") -> None:
        self._cache = cache
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def extend(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the next positions [rows, kv_heads, length, head_dim]; returns all that are taken with them.

        They count as taken once every layer has stored them.
        """
        if self.keys is None or self.values is None:
            shape = (*key.shape[:2], self._cache.room, key.shape[3])
            self.keys, self.values = key.new_empty(shape), value.new_empty(shape)
        start = self._cache.length
        end = start + key.shape[2]
        self.keys[:, :, start:end], self.values[:, :, start:end] = key, value
        return self.keys[:, :, :end], self.values[:, :, :end]


class KeyValueCache:
    """Room for `room` positions in each row, of which `length` are taken. All rows advance together."""

    def __init__(self, room: int) -> None:
        self.room, self.length, self.layers = room, 0, list[LayerCache]()

    def layer(self, number: int) -> LayerCache:
        if number == len(self.layers):
            self.layers.append(LayerCache(self))
        return self.layers[number]

    def selected(self, rows: torch.Tensor, room: int) -> Self:
        """A copy of these rows, which may repeat, with room for `room` positions."""
        copy = type(self)(room)
        for number, layer in enumerate(self.layers):
            assert layer.keys is not None and layer.values is not None
            keys, values = (tensor[rows, :, : self.length] for tensor in (layer.keys, layer.values))
            copy.layer(number).extend(keys, values)
        copy.length = self.length
        return copy

    def forget(self, start: int, count: int, cos: torch.Tensor, sin: torch.Tensor) -> None:
        """Drops `count` positions from `start` on. Those behind them move up: they keep their distances from
        each other and get nearer to the ones before. `cos` and `sin` are the model's.
        """
        for layer in self.layers:
            assert layer.keys is not None and layer.values is not None
            after, end = slice(start + count, self.length), self.length - count
            layer.keys[:, :, start:end] = turned_back(layer.keys[:, :, after], cos, sin, count)
            layer.values[:, :, start:end] = layer.values[:, :, after].clone()
        self.length -= count
