"""What a person sees of a training in a terminal, and what is in its log."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pseudo_terminal import CTRL_C, InTerminal


def trainer(settings: dict[str, Any], path: Path) -> InTerminal:
    path.write_text(yaml.safe_dump(settings))
    return InTerminal([sys.executable, "-m", "trainer", str(path)], environment={**os.environ})


@pytest.mark.slow
def test_a_terminal_shows_the_bar_and_the_log_file_has_lines_alone(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    settings["training"] |= {"max_tokens": 4096 * 256, "evaluation": {"every_tokens": 1024 * 256}}
    settings["training"]["checkpoint"] = {"every_tokens": 1024 * 256}
    with trainer(settings, tmp_path / "config.yaml") as shown:
        shown.until(lambda _: shown.seen("training", "loss", " of 4,096", "tokens/s", "validation", "left"))
        shown.press(CTRL_C)
        shown.to_the_end()
    assert shown.seen("loading PyTorch")
    assert "stopped at step" in shown.lines[-2] and shown.lines[-1] == ""
    assert not any("█" in line for line in shown.lines)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "stopped at step" in log
    assert not {"\r", "\x1b", "█"} & {*log} and "loading PyTorch" not in log
