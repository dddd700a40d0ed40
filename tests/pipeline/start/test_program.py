"""The program `groundwork`, as it is typed."""

import json
import os
import signal
import site
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.folders import ENGLISH
from tests.integration.project import until
from tests.pseudo_terminal import InTerminal

ROOT = Path(__file__).parents[3]


def groundwork(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    code = "import sys; sys.argv[0] = 'groundwork'; from pipeline.__main__ import groundwork; groundwork()"
    command = [sys.executable, "-c", code, *arguments]
    given = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=120, env=given)


def test_a_folder_is_started_and_what_is_no_folder_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = groundwork(str(tmp_path / "nowhere"), "--hours", "1", TMPDIR=str(tmp_path))
    assert done.returncode == 2
    assert "nowhere: is not a folder: name one that holds text" in done.stderr
    assert "Traceback" not in done.stderr and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "arguments", [["--hours", "1", "-o", "x", "nowhere"], ["--hours", "1", "--", "-dash"], ["--", "-dash"]]
)
def test_options_may_stand_before_the_folder(arguments: list[str]) -> None:
    done = groundwork(*arguments)
    said = "is not a folder: name one" if "--hours" in arguments else "`groundwork -dash --hours 2`"
    assert done.returncode == 2 and said in done.stderr


def test_a_folder_without_a_deadline_is_told_how_to_name_one(tmp_path: Path) -> None:
    done = groundwork(str(tmp_path / "my texts"))
    assert done.returncode == 2 and "usage" not in done.stderr
    assert f"as in `groundwork '{tmp_path}/my texts' --hours 2`" in done.stderr.splitlines()[-1]


def test_a_misspelled_command_is_not_taken_for_a_folder() -> None:
    done = groundwork("summry")
    assert done.returncode == 2
    assert "'summry' is neither a folder nor a command: did you mean 'summary'?" in done.stderr


def test_a_command_and_the_trainers_are_run() -> None:
    done = groundwork("recipe", "--explain", "dedup")
    assert done.returncode == 0 and "threshold" in done.stdout
    assert groundwork("start", "--help").stdout.startswith("usage: groundwork start [-h] [--hours")
    assert "the recipe has no `variants`" in groundwork("--recipe", "tiny", "variants").stderr
    done = groundwork("trainer", "plan", "--help")
    assert done.returncode == 0 and "--mfu" in done.stdout


def test_a_terminal_without_the_letters_of_a_name_is_no_reason_to_fail(tmp_path: Path) -> None:
    done = groundwork("init", str(tmp_path / "größe 😀.yaml"), PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stderr in ("", "init: loading\n")  # which is said once it takes long
    assert "gr\\xf6\\xdfe \\U0001f600.yaml is written" in done.stdout


@pytest.mark.parametrize(
    ("home", "why"),
    [
        ("here", "is no full path: write it from /"),
        ("/nowhere/at/all", "there is no such folder: make it"),
        (__file__, "there is no such folder: make it"),
        ("/proc/self", "may not be written to: change who may write there"),
        ("/data/why?", "no folder with '?' in its path can hold Dagster's databases: name another"),
        ("/data/a%20b", "no folder with '%20' in its path can hold Dagster's databases: name another"),
    ],
)
def test_a_home_that_dagster_cannot_use_is_one_sentence(home: str, why: str) -> None:
    command = [sys.executable, "-m", "pipeline.dagster_command", "job", "execute", "-j", "pretrain"]
    given = {**os.environ, "DAGSTER_HOME": home}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: DAGSTER_HOME ") and why in done.stderr


def test_an_installation_that_dagster_cannot_use_is_one_sentence(tmp_path: Path) -> None:
    venv = tmp_path / "100% text"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    packages = os.pathsep.join([str(ROOT), *site.getsitepackages()])
    given = {**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": packages}
    command = [venv / "bin" / "python", "-m", "pipeline.dagster_command", "--version"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=120)
    why = "Dagster cannot be used from a folder with '%' in its path: rename that, and install again"
    assert (done.returncode, done.stderr) == (2, f"error: {venv}: {why}\n")


@pytest.mark.parametrize("option", ["--port={}", "-p{}"])
def test_a_ui_whose_port_another_program_has_ends_at_once_with_what_to_do(
    tmp_path: Path, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "pipeline.dagster_command", "dev", "-h", "127.0.0.1"]
        given = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
        done = subprocess.run(
            [*command, option.format(port)], cwd=ROOT, env=given, capture_output=True, text=True, timeout=60
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"error: port {port} of 127.0.0.1: Address already in use: ")
    assert "give another `--port`" in done.stderr


def test_a_second_ui_of_a_home_ends_at_once(tmp_path: Path) -> None:
    """Both would begin each scheduled run."""
    given = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    holding = "from pipeline.assets.operations.ui_start import only_ui\nwith only_ui(): print(1), input()"
    first = [sys.executable, "-uc", holding]
    command = [sys.executable, "-m", "pipeline.dagster_command", "dev", "-h", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(first, cwd=ROOT, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout and held.stdout.readline() == b"1\n"
        done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=60)
        held.communicate(b"\n", timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"error: DAGSTER_HOME {tmp_path}: another UI of this home runs")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_start_that_is_stopped_or_whose_terminal_is_closed_leaves_no_file(
    number: signal.Signals, tmp_path: Path
) -> None:
    folder, temporary = tmp_path / "texts", tmp_path / "temporary"
    for made in (folder, temporary, tmp_path / "home"):
        made.mkdir()
    (folder / "a.txt").write_text("\n\n".join(ENGLISH))
    given = {**os.environ, "TMPDIR": str(temporary), "DAGSTER_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "pipeline", "start", str(folder), "--hours", "2", "--plan"]
    process = subprocess.Popen(command, cwd=ROOT, env=given, stderr=subprocess.PIPE, text=True)
    until(lambda: any(temporary.glob("*/speed.yaml")), 120)
    process.send_signal(number)
    assert "Traceback" not in process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert not [*temporary.iterdir()]
    assert not folder.with_name("texts.yaml").exists()


def test_warnings_of_libraries_are_no_errors_of_a_run(tmp_path: Path) -> None:
    given = {**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONWARNINGS": "error"}
    listing = ["job", "list", "--module-name", "pipeline.definitions"]
    command = [sys.executable, "-m", "pipeline.dagster_command", *listing]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "pretrain" in done.stdout


JOB = """import sys, time
from trainer.system import terminal
terminal.begin("preparing the run")
terminal.stages(lambda: 9)
terminal.next_stage()
print("a sample", flush=True)
with terminal.doing("training") as bar:
    bar.update(0.41, ["loss 4.213", "step 41 of 100"], 90.0)
    time.sleep(1.2)
with terminal.doing("compiling kernels: quality, which needs more columns than there are"):
    time.sleep(1.2)
"""
START = """import sys
from pipeline.start.jobs import execute
from trainer.system import terminal
from trainer.system.clock import since_boot
terminal.begin()
terminal.whole(since_boot() - 60, since_boot() + 120)
execute([sys.executable, "-c", sys.argv[1], "pretrain"])
"""


def test_a_person_sees_one_bar_for_all_that_is_left_to_do() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with InTerminal([sys.executable, "-c", START, JOB], 80, environment) as shown:
        assert shown.to_the_end() == 0
    end = "  ends about "
    assert shown.seen("pretrain 1 of 9 · training 41% ███", "░░░  loss 4.213" + end)
    assert shown.seen("pretrain 1 of 9 · compiling kernels: quality", end)
    assert shown.lines == ["a sample", ""]


def test_a_person_who_stops_it_is_told_at_the_end_how_it_resumes() -> None:
    job = "import time\ntry:\n    print('at work', flush=True)\n    time.sleep(60)\n"
    job += "except KeyboardInterrupt:\n    raise SystemExit('Error: Run 1 resulted in failure.')"
    process = subprocess.Popen(
        [sys.executable, "-c", START, job],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout and process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1].splitlines()
    assert said[0] == "Error: Run 1 resulted in failure." and "stopped: the same command resumes" in said


def test_what_no_model_can_be_made_of_is_said_before_anything_is_compiled_or_measured(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    folder.mkdir()
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": ENGLISH[0][:500]}]
    (folder / "chats.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    kernels = tmp_path / "kernels"  # empty, as on a fresh machine
    kernels.mkdir()
    done = groundwork(str(folder), "--hours", "1", NUMBA_CACHE_DIR=str(kernels))
    assert done.returncode == 2 and "has only rows of chat" in done.stderr
    assert "compiling" not in done.stderr + done.stdout and not any(kernels.iterdir())
    folder.joinpath("text.txt").write_text("\n\n".join(ENGLISH[:40]))
    done = groundwork(str(folder), "--hours", "1", DAGSTER_HOME="/proc/self", NUMBA_CACHE_DIR=str(kernels))
    assert done.returncode == 2 and not done.stdout and not any(kernels.iterdir())
    assert "DAGSTER_HOME /proc/self: may not be written to: change who may write there" in done.stderr
