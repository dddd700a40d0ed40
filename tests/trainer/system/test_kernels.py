"""Kernels where numba may keep nothing beside the code and in the home directory."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import numpy as np
from kernels import add
from pipeline.stages.compiled import kernel
from trainer.data.packing.bestfit import pack
print(len(pack(np.zeros(3, np.int64), np.full(3, 5, np.int32), 9).ends), kernel(add)(2))
"""


def test_kernels_are_kept_among_temporary_files_where_there_is_no_other_place(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.stdout, done.stderr) == ("2 3\n", "")
    kept = tmp_path / f"groundwork-kernels-{os.getuid()}"
    assert kept.stat().st_mode & 0o777 == 0o700
    assert {"bestfit", "kernels"} <= {index.name.partition(".")[0] for index in kept.rglob("*.nbi")}


def test_kernels_that_somebody_else_may_have_put_there_are_not_run(tmp_path: Path) -> None:
    kept = tmp_path / f"groundwork-kernels-{os.getuid()}"
    kept.mkdir()
    kept.chmod(0o777)
    done = run(tmp_path)
    assert (done.stdout, done.stderr, [*kept.iterdir()]) == ("2 3\n", "", [])


def run(temporary: Path) -> "subprocess.CompletedProcess[str]":
    """numba may not write beside the code, which root always may."""
    (temporary / "code").mkdir()
    (temporary / "code" / "kernels.py").write_text("def add(number):\n    return number + 1\n")
    environment = {
        "HOME": "/proc/nowhere",
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator,UserWideCacheLocator",
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), str(temporary / "code")]),
        "PATH": os.environ["PATH"],
    }
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
