"""The recipe says how the trainer is started."""

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.recipe.sections import LaunchParams
from pipeline.steps.training.launcher import Launcher
from pipeline.steps.training.process_group import TrainerKilledError
from pipeline.store.errors import PipelineError


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"nproc_per_node": 2}, "nproc_per_node 2 needs kind: torchrun"),
        ({"kind": "torchrun", "nodes": 2}, "nodes needs kind: ray; set the kind, or leave out nodes"),
        ({"address": "head:6379"}, "address needs kind: ray"),
        ({"kind": "command"}, "kind: command needs a command, for example"),
        ({"kind": "command", "command": []}, "kind: command needs a command, for example"),
        ({"kind": "command", "command": [""]}, "at least 1 character"),
        ({"kind": "torchrun", "command": ["srun"]}, "command is for kind: command; set the kind"),
        (
            {"kind": "command", "command": ["srun"], "nproc_per_node": 8},
            "nproc_per_node 8 has no effect with kind: command; give torchrun --nproc-per-node in the "
            "command",
        ),
    ],
)
def test_a_launch_that_cannot_work_is_refused_with_what_to_write(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        LaunchParams.model_validate(settings)


def test_a_program_that_is_missing_is_named_before_anything_starts(tmp_path: Path) -> None:
    started = Launcher(LaunchParams(kind="command", command=("no-such-srun", "torchrun")), None)
    with pytest.raises(
        PipelineError, match=r"launch\.command: 'no-such-srun' is not a program on this machine"
    ):
        started.run(tmp_path / "config.yaml", {}, lambda: True)


@pytest.mark.parametrize("first_line", ["", "#!/no/such/shell\n"])
def test_a_script_that_the_system_cannot_run_says_what_it_needs(tmp_path: Path, first_line: str) -> None:
    script = tmp_path / "start"
    script.write_text(f'{first_line}exec python "$@"\n')
    script.chmod(0o755)
    started = Launcher(LaunchParams(kind="command", command=(str(script),)), None)
    with pytest.raises(
        PipelineError, match=r"start' cannot be started: .*A script needs a first line such as"
    ):
        started.run(tmp_path / "config.yaml", {}, lambda: True)


def test_a_command_is_given_the_run_its_variables_and_no_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    config, said = tmp_path / "config.yaml", tmp_path / "said"
    names = ("A", "B", "OMP_NUM_THREADS")
    code = f"import os, sys; print(*sys.argv[1:], *map(os.environ.get, {names}), file=sys.stderr)"
    params = LaunchParams(kind="command", command=("env", "A=1", sys.executable, "-c", code))
    for threads in (None, 3):
        with said.open("wb") as errors:
            assert Launcher(params, threads).run(config, {"B": "2"}, lambda: True, errors) == 0
        assert said.read_text() == f"-m trainer {config} 1 2 {threads}\n"


def test_a_killed_trainer_is_told_from_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Launcher(LaunchParams(), None)
    for how, status in (("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", None)):
        monkeypatch.setattr(
            "trainer.system.launch.command",
            lambda *_, how=how: [sys.executable, "-c", f"import os, sys; {how}"],
        )
        if status is None:
            with pytest.raises(
                TrainerKilledError, match=r"ended by SIGKILL, .*: lower training\.micro_batch"
            ):
                started.run(tmp_path / "config.yaml", {}, lambda: True)
        else:
            assert started.run(tmp_path / "config.yaml", {}, lambda: True) == status


def test_srun_is_stopped_by_the_signal_that_it_passes_on(tmp_path: Path) -> None:
    script = tmp_path / "srun"
    script.write_text(
        f"#!{sys.executable}\n"
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))\n"
        f"open({str(tmp_path / 'up')!r}, 'w').close()\n"
        "time.sleep(60)\n"
    )
    script.chmod(0o755)
    started = Launcher(LaunchParams(kind="command", command=(str(script), "torchrun")), None)
    assert started.run(tmp_path / "config.yaml", {}, lambda: not (tmp_path / "up").exists()) == 5
