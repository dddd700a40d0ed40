"""What a run keeps beside its checkpoints may be damaged: a run that resumes goes on, or says in a sentence
which file it cannot read.
"""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from trainer.config import RunConfig
from trainer.run.loop import DONE, run
from trainer.system.errors import TrainerError

DAMAGE = {"emptied": b"", "of another kind": b"[]", "of other bytes": b"\xff" * 9}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["preferences", "documents"])
def test_a_run_resumes_or_names_the_file_whichever_is_damaged(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    settings: dict[str, Any] = request.getfixturevalue("dpo" if kind == "preferences" else "settings")
    settings["training"] |= {"packing": "documents" if kind == "documents" else "best_fit"}
    config, whole = RunConfig.model_validate(settings), tmp_path / "whole"
    assert run(config) == DONE
    shutil.rmtree(sorted((config.run_dir / "checkpoints").iterdir())[-1])
    (config.run_dir / "sinks.json").write_text('{"id": "0123abcd"}\n')
    (config.run_dir / "keep.txt").write_text("step-00000004\n")
    shutil.move(config.run_dir, whole)
    files = [path for path in whole.rglob("*") if path.is_file() and "checkpoints" not in path.parts]
    assert {"index.json", "sinks.json", "keep.txt", "metrics.jsonl"} <= {path.name for path in files}
    logging.getLogger("trainer").setLevel(logging.WARNING)
    for file in files:
        for damage, content in DAMAGE.items():
            shutil.copytree(whole, config.run_dir)
            (config.run_dir / file.relative_to(whole)).write_bytes(content)
            try:
                assert run(config) == DONE, f"{file} {damage}"
            except TrainerError as error:
                assert file.parent.name in str(error), f"{file} {damage}: {error}"
            shutil.rmtree(config.run_dir)
