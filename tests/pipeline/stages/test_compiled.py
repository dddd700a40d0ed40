"""Who waits for a kernel to be compiled is told so."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipeline.stages import compiled
from pipeline.stages.compiled import Compiled


def test_a_kernel_is_announced_once_when_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    @contextmanager
    def announced(stage: str) -> Iterator[None]:
        events.append(f"compiling {stage}")
        yield
        events.append("compiled")

    def following(number: int) -> int:
        return number + 1

    following.__module__ = "pipeline.stages.dedup.bands"
    monkeypatch.setattr(compiled, "announced", announced)
    kernel = Compiled(following)
    assert [kernel(1), kernel(2)] == [2, 3]
    assert events == ["compiling dedup", "compiled"]
