"""Whatever stands on the command line, a command ends in its status or in one sentence."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from tests.trainer.runs import ROOT, write_config
from trainer.__main__ import COMMANDS, main

pytestmark = pytest.mark.usefixtures("trainer_environment")
OPTIONS = {
    "": ["--allow-changes", "--profile"],
    "evaluate": ["--model", "--config", "--samples"],
    "generate": ["--model", "--prompt", "--max-new-tokens", "--temperature", "--top-k", "--top-p", "--seed"],
    "benchmark": ["--model", "--precision", "--output"],
    "answer": ["--model", "--max-new-tokens", "--temperature", "--top-k", "--top-p", "--seed"],
    "chat": ["--system", "--max-new-tokens", "--temperature", "--top-k"],  # a page would be served for ever
    "check": ["--model"],
    "predict": ["--model", "--prompt"],
    "merge": ["--last", "--weights", "--output", "--name"],
    "states": [],
    "plan": ["--gpu", "--gpus", "--mfu", "--price", "--json"],
    "several": [],
}
VALUES = [
    *("", " ", "-", "--", "=", "a=", "=1", "a.b=1", "a=[", "*", "nan", "inf", "-1", "0", "1", "1.5", "1e400"),
    *("9" * 30, "1e-400", "1b", "tiny", "7b", "350m", "H100", "cpu", "adamw", "muon", "full", "{}", "[]"),
    *('{"prompts": ["the"]}', '{"prompts": ["\\ud800"]}', "the", "é", "\x1b[2J", "\udc80", "x" * 5000),
    *("/", "/dev/null", "~nobody/x", "..", "training.seed=1,2", "training.seed=1"),
    *("training.optimizer.lr=[]", "run_dir=/", "data=1", "training=null", "data.corpora.9=1"),
    *("nowhere.yaml", "0123abcd", "0123-1"),
]


PATHS = ["run", "run.yaml", "run/checkpoints/step-00000012", "run/checkpoints/step-00000012/hf", "bytes.yaml"]
PATHS += ["empty.yaml", "list.yaml", "model.yaml", "run/config.yaml", "run/metrics.jsonl", "run/checkpoints"]


@pytest.fixture
def folder(finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a run, its configuration, a file that is none, a directory that cannot be one, and no store."""
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    shutil.copytree(finished_once, tmp_path / "run")
    settings = yaml.safe_load((finished_once / "config.yaml").read_text())
    write_config(settings, tmp_path / "run.yaml", tmp_path / "run")
    (tmp_path / "bytes.yaml").write_bytes(bytes(range(256)))
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "list.yaml").write_text("[1, 2]")
    (tmp_path / "model.yaml").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(["", *COMMANDS]))
    value = st.sampled_from([*PATHS, *VALUES]) | st.text(
        st.characters(codec="utf-8", exclude_characters="\0"), max_size=8
    )
    line = draw(st.lists(st.sampled_from(PATHS) | value, max_size=2))
    if OPTIONS[command]:
        for option in draw(st.lists(st.sampled_from(OPTIONS[command]), max_size=3)):
            line += [option, *([] if option in OPTIONS[""] else [draw(value)])]
    return [command, *line] if command else line


def test_the_lines_below_try_every_command() -> None:
    assert OPTIONS.keys() == {"", *COMMANDS}


@pytest.mark.slow
def test_a_command_line_ends_in_its_status_or_in_a_sentence(folder: Path) -> None:
    @bounded(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(lines())
    def one(line: list[str]) -> None:
        standard_input = io.StringIO("[]\n" + json.dumps(line[1:]) + "\n" + " ".join(line))
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "stdin", standard_input)  # for `several` and `chat`
                status: Any = main(line)
        except SystemExit as error:  # argparse's
            status = error.code
        assert status in (0, 1, 2, 3)

    one()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["generate", "--prompt", "caf\udce9"], r"samples: prompts\.0: must be text in UTF-8"),
        (["benchmark", "one/own.jsonl", "two/own.jsonl"], "two of the files have the same name"),
        (["benchmark", "one/own.jsonl", "--output", "run.yaml"], "--output run.yaml: is a file"),
        (["predict", "beyond.npy"], "rows of 3 tokens with ids up to 300: .* has a vocabulary of 300"),
        (["evaluate", "--config", "other.yaml"], ".* was trained with another tokenizer than that of data"),
        (["predict", "long.npy"], "rows of 99 tokens .* reads 32 tokens at a time"),
    ],
)
def test_what_a_model_cannot_read_is_refused_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], line: list[str], said: str
) -> None:
    item = {"context": "the", "continuations": [" model"], "gold": 0}
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "own.jsonl").write_text(json.dumps(item))
    other = yaml.safe_load(Path("run.yaml").read_text())
    other["data"]["tokenizer_sha256"] = "0" * 64
    Path("other.yaml").write_text(yaml.safe_dump(other))
    np.save("beyond.npy", np.array([[2, 9, 300]]))
    np.save("long.npy", np.full((1, 99), 9))
    assert main([line[0], "--model", "run", *line[1:]]) == 2
    assert re.search(f"^trainer: {said}", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--system", "caf\udce9", "--system: must be text in UTF-8"), ("--port", "99999", "from 0 to 65535")],
)
def test_a_chat_refuses_what_is_no_text_or_no_port(
    capsys: pytest.CaptureFixture[str], option: str, value: str, said: str
) -> None:
    assert main(["chat", "nowhere", "--page", option, value]) == 2
    assert said in capsys.readouterr().err


def test_a_checkpoint_that_lost_a_file_is_refused_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run" / "checkpoints" / "step-00000012" / "state.json").unlink()
    assert main(["evaluate", "--model", "run"]) == 2
    assert re.search(r"^trainer: .*state\.json: cannot be read", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.parametrize(
    "line",
    [
        ["nowhere.yaml"],
        ["plan", "nowhere.yaml"],
        ["run.yaml", "data.shards=nowhere.yaml"],
        ["answer", "nowhere.yaml", "--model", "run"],
        ["predict", "nowhere.yaml", "--model", "run"],
        ["evaluate", "--model", "run", "--config", "nowhere.yaml"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_a_file_that_is_missing_is_named_once_and_without_numbers(
    capsys: pytest.CaptureFixture[str], line: list[str]
) -> None:
    assert main(line) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "No such file or directory" in said
    assert said.count("nowhere.yaml") == 1 and "Errno" not in said and "Error" not in said


def test_a_port_without_a_page_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "nowhere", "--port", "8000"]) == 2
    assert "a chat in the terminal has no port: add --page" in capsys.readouterr().err


def test_a_mean_that_cannot_be_written_is_refused_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = "run/checkpoints/step-00000012"
    assert main(["merge", step, step, "--output", "run.yaml/mean"]) == 2
    assert re.search(r"^trainer: .*: Not a directory", capsys.readouterr().err, re.MULTILINE)


def test_bytes_on_standard_input_that_are_no_text_do_not_end_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b'["check", "--model", "caf\xe9"]\n'), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", typed)
    assert main(["several"]) == 0
    assert "caf\ufffd: does not exist" in capsys.readouterr().err


def test_a_reader_that_has_enough_ends_a_command_without_a_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "trainer", "several"]
    ended = subprocess.run(
        command, input=b'["nowhere.yaml"]\n', stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, check=False
    )
    os.close(writing)
    assert ended.returncode == 128 + signal.SIGPIPE and b"Traceback" not in ended.stderr


def test_a_full_disk_under_what_is_printed_is_told_in_a_sentence() -> None:
    command = [sys.executable, "-m", "trainer", "several"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            command, input=b'["nowhere.yaml"]\n', stdout=full, stderr=subprocess.PIPE, cwd=ROOT, check=False
        )
    assert ended.returncode == 2
    assert ended.stderr.endswith(b"trainer: what is printed cannot be written: No space left on device\n")


def test_letters_that_the_plainest_terminal_lacks_are_escaped(folder: Path) -> None:
    plain = {**os.environ, "PYTHONIOENCODING": "ascii:surrogateescape"}  # as Python has it under LC_ALL=C
    command = [sys.executable, "-m", "trainer", "generate", "--model", str(folder / "run"), "--prompt", "漢"]
    ended = subprocess.run(command, env=plain, capture_output=True, cwd=ROOT, check=True)
    assert b"\\u6f22" in ended.stdout


def test_a_seed_of_more_than_64_bits_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--model", "nowhere", "--prompt", "the", "--seed", "9" * 30]) == 2
    assert "does not fit into 64 bits" in capsys.readouterr().err


def test_several_commands_end_one_by_one_and_a_line_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ['["check", "--model", "nowhere"]', '["evaluate", "--nothing"]', '{"a": 1}', '["evaluate"]']
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(asked)))
    assert main(["several"]) == 2
    said = capsys.readouterr()
    assert [json.loads(line)["status"] for line in said.out.splitlines()] == [2, 2]
    assert "line 3 of standard input is not a JSON list of texts" in said.err


def test_states_of_a_run_that_looks_at_no_others_are_told_to_be_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty answer would say that it looked."""
    assert main(["states", "run.yaml"]) == 2
    assert "run.yaml: sets no `runs`" in capsys.readouterr().err
