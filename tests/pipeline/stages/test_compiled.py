"""Who waits for a kernel to be compiled is told so, and an update runs no kernel of the old code."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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

    def added(number: int) -> int:
        return number + 1

    added.__module__ = "pipeline.stages.suffixes"
    called = Compiled(added)

    def following(number: int) -> int:
        following_one: int = called(number)
        return following_one

    following.__module__ = "pipeline.stages.dedup.bands"
    monkeypatch.setattr(compiled, "announced", announced)
    kernel = Compiled(following)
    assert [kernel(1), kernel(2)] == [2, 3]
    assert events == ["compiling dedup", "compiled"]


def test_a_kernel_on_disk_is_compiled_anew_when_a_function_of_another_file_changes(tmp_path: Path) -> None:
    program = (
        "import numpy as np; from pipeline.stages import compiled; import called, kernels;"
        "compiled.sources = lambda: hash(open(called.__file__).read());"
        "print(kernels.run(1))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}", "PYTHONHASHSEED": "0"}
    imports = "from pipeline.stages.compiled import {0}\n"
    kernel = imports.format("kernel") + "from called import add\n\n@kernel\ndef run(x):\n    return add(x)\n"
    (tmp_path / "kernels.py").write_text(kernel)
    results = []
    for added in (1, 20):
        called = imports.format("borrowing") + f"\n@borrowing\ndef add(x):\n    return x + {added}\n"
        (tmp_path / "called.py").write_text(called)
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        results.append(int(run.stdout))
    assert results == [2, 21]


def test_what_a_kernel_calls_is_the_same_in_it_and_in_a_kernel_read_from_disk(tmp_path: Path) -> None:
    """Constants, functions that call others or themselves, several types, and what they raise."""
    (tmp_path / "kernels.py").write_text(
        "import numpy as np\n"
        "from pipeline.stages.compiled import borrowing, kernel\n"
        "SEVENS = np.arange(10) * 7\n"
        "@borrowing\n"
        "def at(numbers, i):\n"
        "    if i > 8:\n"
        "        raise ValueError('too far')\n"
        "    return SEVENS[i] + numbers[i]\n"
        "@borrowing\n"
        "def fibonacci(n):\n"
        "    if n < 2:\n"
        "        return n\n"
        "    return fibonacci(n - 1) + fibonacci(n - 2)\n"
        "@borrowing\n"
        "def both(numbers, i):\n"
        "    return at(numbers, i) + fibonacci(i)\n"
        "@kernel\n"
        "def run(numbers, i):\n"
        "    return both(numbers, i) - at(numbers, i - 1)\n"
    )
    program = (
        "import numpy as np; from kernels import run\n"
        "print(run(np.ones(10, np.float32), 8), run(np.ones(10, np.int64), 8))\n"
        "try: run(np.ones(10), 9)\n"
        "except ValueError as error: print(error)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert run.stdout.split("\n")[:2] == ["28.0 28", "too far"]
