"""Evaluate, generate and check, as commands."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from trainer.__main__ import main
from trainer.config import RunConfig


@pytest.mark.usefixtures("trainer_environment")
def test_evaluate_and_generate_are_commands(finished_once: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = str(finished_once / "checkpoints/step-00000012")
    samples = '{"prompts": ["the model", "a"], "max_new_tokens": 5}'
    assert main(["evaluate", "--model", checkpoint, "--samples", samples]) == 0
    found = json.loads(capsys.readouterr().out)
    saved = json.loads((Path(checkpoint) / "state.json").read_text())["evaluation"]
    assert found["bits_per_byte"] == pytest.approx(saved["bits_per_byte"], rel=1e-6)
    assert [sample["text"][: len(sample["prompt"])] for sample in found["samples"]] == ["the model", "a"]
    texts = []
    for _ in range(2):
        options = ["--prompt", "the model", "--max-new-tokens", "5", "--seed", "3"]
        assert main(["generate", "--model", checkpoint, *options]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0].startswith("the model")
    assert texts[0] == texts[1]
    nowhere, config = str(finished_once / "nowhere"), str(finished_once / "config.yaml")
    assert main(["evaluate", "--model", nowhere, "--config", config]) == 2
    assert "nowhere: does not exist. Give the directory of" in capsys.readouterr().err
    assert main(["generate", "--model", checkpoint, "--prompt", "the", "--temperature", "-1"]) == 2
    assert main(["evaluate", "--model", checkpoint, "--samples", '{"temprature": 1}']) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "temperature: must be at least 0, not" in said[0]
    assert "did you mean 'temperature'" in said[1]


def test_an_export_is_checked_where_python_leaves_docstrings_out(finished_once: Path) -> None:
    export = finished_once / "checkpoints/step-00000012/hf"
    command = [sys.executable, "-m", "trainer", "check", "--model", str(export)]
    done = subprocess.run(command, env={**os.environ, "PYTHONOPTIMIZE": "2"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passed"]


@pytest.mark.usefixtures("trainer_environment")
def test_a_check_that_is_not_passed_is_told_apart_by_its_exit_status(
    finished: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    export = finished.run_dir / "checkpoints/step-00000012/hf"
    assert main(["check", "--model", str(export)]) == 0 and json.loads(capsys.readouterr().out)["passed"]
    weights = load_file(export / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, export / "model.safetensors", metadata={"format": "pt"})
    assert main(["check", "--model", str(export)]) == 3 and not json.loads(capsys.readouterr().out)["passed"]
