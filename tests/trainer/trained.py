"""Runs to their end, in this process."""

import shutil
from pathlib import Path
from typing import Any

from tests.trainer.runs import outcome
from trainer.checkpoint import publish
from trainer.config import RunConfig
from trainer.run.loop import DONE, run


def trained(settings: dict[str, Any], run_dir: Path | None = None, **training: Any) -> RunConfig:
    """The configuration of a run that is done, of `settings` changed by `training`."""
    where = {} if run_dir is None else {"run_dir": str(run_dir)}
    changed = {**settings, **where, "training": {**settings["training"], **training}}
    config = RunConfig.model_validate(changed)
    assert run(config) == DONE
    return config


def saved(config: RunConfig) -> list[Path]:
    """The checkpoints of a run, the newest last."""
    return publish.existing(config.run_dir / "checkpoints")


def assert_resumes_to_the_same_bytes(config: RunConfig) -> None:
    """A run that is done, from the checkpoint before its last one."""
    whole = outcome(config.run_dir)
    shutil.rmtree(saved(config)[-1])
    assert run(config) == DONE
    assert outcome(config.run_dir) == whole
