"""Ctrl-C while a program loads: it ends at once, without a stack trace, and leaves nothing running."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.pseudo_terminal import CTRL_C, InTerminal

ROOT = Path(__file__).parents[2]
GROUNDWORK = "import sys; sys.argv[0] = 'groundwork'; from pipeline.__main__ import groundwork; groundwork()"
COMMANDS = {
    "groundwork": ["-c", GROUNDWORK, "summary"],
    "pipeline": ["-m", "pipeline", "summary"],
    "trainer": ["-m", "trainer", "generate", "--model", "nowhere", "--prompt", "x"],
    "dagster": ["-m", "pipeline.dagster_command", "job", "execute", "-j", "pretrain"],
}


@pytest.mark.parametrize(
    ("program", "imported"),
    [
        *[("groundwork", name) for name in ("argparse", "pydantic", "numpy", "pyarrow.lib", "tqdm")],
        *[("pipeline", name) for name in ("argparse", "pydantic", "numpy", "pyarrow.lib", "tqdm")],
        *[("trainer", name) for name in ("argparse", "pydantic", "numpy", "torch._C")],
        *[("dagster", name) for name in ("dagster_shared", "dagster._utils")],
    ],
)
def test_ctrl_c_at_any_import_ends_a_program_without_a_stack_trace(
    program: str, imported: str, tmp_path: Path
) -> None:
    ours = {"PYTHONPATH": str(ROOT), "DAGSTER_HOME": str(tmp_path), "PYTHONPROFILEIMPORTTIME": "1"}
    with InTerminal([sys.executable, *COMMANDS[program]], 110, {**os.environ, **ours}) as shown:
        shown.until(lambda lines: any(line.split("|")[-1].strip() == imported for line in lines))
        shown.press(CTRL_C)
        status = shown.to_the_end()
    assert status in (-signal.SIGINT, 128 + signal.SIGINT), shown.lines[-9:]
    assert "Traceback" not in shown.raw.decode()
