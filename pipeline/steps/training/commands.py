"""Commands of the trainer that print a result and end."""

import os
import subprocess
import sys

from pipeline.store.errors import PipelineError
from trainer.system import launch
from trainer.system.errors import NOT_PASSED
from trainer.system.signals import stop_with_parent


class TrainerCommandError(PipelineError):
    """A command of the trainer failed."""


def run_trainer(*arguments: str, threads: int | None = None) -> str:
    """The standard output of `python -m trainer ...`, also of a check that failed. Raises TrainerCommandError
    with the last line of its standard error.
    """
    environment = {**os.environ, **launch.environment(threads)}
    command = [sys.executable, "-m", "trainer", *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, preexec_fn=stop_with_parent
    )
    if ended.returncode not in (0, NOT_PASSED):
        lines = ended.stderr.strip().splitlines() or ["it wrote no error message"]
        raise TrainerCommandError(
            f"`python -m trainer {arguments[0]}` ended with exit status {ended.returncode}: {lines[-1]}"
        )
    return ended.stdout
