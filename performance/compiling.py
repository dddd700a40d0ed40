"""What compiling the kernels of the default recipe costs on a first run, in seconds of processor time.

`python performance/compiling.py` runs the two processes that compile ahead of a first run, one after the
other, with an empty cache and again with the full one. The difference is compiling. `llvm` is spent in LLVM,
`numba` in everything else. NUMBA_CPU_NAME and NUMBA_CPU_FEATURES choose another processor.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.sidebyside import ROOT, Report, peak_megabytes, record
from numba.core import event

from pipeline.steps import compile_kernels

PROCESSES = ("scrubbing", "later")


class Clock(event.Listener):
    """Seconds in LLVM, and of each kernel with all that it calls."""

    def __init__(self) -> None:
        self.kernels: list[dict[str, Any]] = []
        self.functions = 0
        self._open: list[tuple[float, float]] = []
        self._locked = 0
        self._llvm = self._since = 0.0

    def on_start(self, event: event.Event) -> None:
        if event.kind == "numba:compile":
            self._open.append((time.process_time(), self._llvm))
        else:
            if not self._locked:
                self._since = time.process_time()
            self._locked += 1

    def on_end(self, event: event.Event) -> None:
        if event.kind != "numba:compile":
            self._locked -= 1
            if not self._locked:
                self._llvm += time.process_time() - self._since
            return
        started, before = self._open.pop()
        self.functions += 1
        if self._open:
            return
        llvm = self._llvm - before
        function = event.data["dispatcher"].py_func
        self.kernels.append(
            {
                "kernel": f"{function.__module__}.{function.__name__}",
                "types": [str(kind) for kind in event.data["args"]],
                "functions": self.functions,
                "numba": round(time.process_time() - started - llvm, 2),
                "llvm": round(llvm, 2),
            }
        )
        self.functions = 0


def compiled(process: str) -> Report:
    """In a process of its own: what one of the two compiles."""
    clock = Clock()
    for kind in ("numba:compile", "numba:llvm_lock"):
        event.register(kind, clock)
    compile_kernels.main(process)
    return {"seconds": time.process_time(), "peak_mb": round(peak_megabytes()), "kernels": clock.kernels}


def run(process: str, cache: str) -> Report:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, str(Path(__file__)), process]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    return json.loads(ended.stdout)


def measured(process: str) -> Report:
    with tempfile.TemporaryDirectory() as cache:
        first, second = run(process, cache), run(process, cache)
    return first | {"seconds": round(first["seconds"] - second["seconds"], 2)}


def main() -> None:
    processes = {process: measured(process) for process in PROCESSES}
    total = round(sum(report["seconds"] for report in processes.values()), 2)
    record("compiling", {"seconds": total, "processes": processes}, ("numba", "llvmlite"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(compiled(sys.argv[1])))
    else:
        main()
