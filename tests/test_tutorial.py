"""docs/tutorial.md, typed as it stands: every command works, and says what the page shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.project import OURS, PATIENCE, ROOT

PAGE = ROOT / "docs" / "tutorial.md"
MARK = "--- block "
MINUTES = 20

pytestmark = pytest.mark.slow


def blocks(page: str) -> list[tuple[str, str]]:
    """The commands of the page, and what it shows of their output: "" where it shows nothing."""
    found = re.findall(r"```sh\n(.*?)```(?:\n\n```text\n(.*?)```)?", page, flags=re.DOTALL)
    return [(commands, shown) for commands, shown in found]


def pattern(shown: str) -> str:
    """An expression for what is shown: `...` stands for anything, a number for any number, and a hash for any
    hash; white space does not count.
    """
    pieces = []
    for piece in re.split(r"(\.\.\.|\b[0-9a-f]{8,64}\b|[-+]?\d[\d,.]*%?|\s+)", shown.strip()):
        if piece == "...":
            pieces.append(r"[\s\S]*?")
        elif re.fullmatch(r"[0-9a-f]{8,64}", piece):
            pieces.append(r"[0-9a-f]+")
        elif re.fullmatch(r"[-+]?\d[\d,.]*%?", piece):
            pieces.append(r"[-+]?[\d,.]+%?")
        else:
            pieces.append(r"\s+" if piece.isspace() else re.escape(piece))
    return "".join(pieces)


def test_the_tutorial_says_what_happens(tmp_path: Path) -> None:
    told = blocks(PAGE.read_text(encoding="utf-8"))
    assert len(told) >= 10
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    environment |= {"DAGSTER_HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME": "pipeline.definitions"}
    environment |= {"DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY": str(ROOT)}
    script = "set -e\n" + "".join(
        f"echo '{MARK}{number}'\n{commands}" for number, (commands, _) in enumerate(told)
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=MINUTES * 60 * PATIENCE,
    )
    (tmp_path / "said.txt").write_text(done.stdout, encoding="utf-8")
    said = re.split(rf"^{MARK}\d+$", done.stdout, flags=re.MULTILINE)[1:]
    assert done.returncode == 0, f"block {len(said)} failed: {said[-1][-2000:]}"
    for (commands, shown), output in zip(told, said, strict=True):
        assert re.search(pattern(shown), output), f"{commands}\nsays\n{output}\nand not\n{shown}"
