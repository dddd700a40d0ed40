"""Ctrl-C while a program loads: it ends at once, without a stack trace, and leaves nothing running."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.project import until
from tests.integration.test_ui import free_port
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "interrupts"),
    [
        (signal.SIGINT, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_IGN),  # as the shell starts what a script has in the background
    ],
)
def test_a_signal_to_the_ui_ends_all_of_its_processes(
    number: signal.Signals, interrupts: signal.Handlers, tmp_path: Path
) -> None:
    port = str(free_port())
    options = ["--host", "127.0.0.1", "--port", port, "--module-name", "pipeline.definitions"]
    ours = {"DAGSTER_HOME": str(tmp_path), "TMPDIR": str(tmp_path), "GROUNDWORK_RECIPE": "tiny"}
    log = tmp_path / "log"
    server = subprocess.Popen(
        [sys.executable, "-m", "pipeline.dagster_command", "dev", *options],
        cwd=ROOT,
        env={**os.environ, **ours},
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, interrupts),
    )
    until(lambda: "Serving dagster-webserver" in log.read_text(), 180)
    server.send_signal(number)
    server.wait(timeout=120)
    command_lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [line for line in command_lines if port.encode() in line]
    assert "Traceback" not in log.read_text() and not [*tmp_path.glob("*/workspace.yaml")]
