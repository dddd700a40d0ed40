"""One process of the trainer runs several commands as several processes would."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from pipeline.steps.training.launcher import one_trainer, run_trainer
from pipeline.store.errors import PipelineError
from tests.trainer.run.evaluation.test_conversation import BOT, EOT, make, write_tokenizer
from trainer.hf import export


def children() -> list[int]:
    path = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return [int(pid) for pid in path.read_text().split()]


def test_commands_share_a_process_and_a_mistake_in_one_does_not_end_it(tmp_path: Path) -> None:
    model, questions = tmp_path / "model", tmp_path / "questions.jsonl"
    export(make(), write_tokenizer(tmp_path / "tokenizer"), bot_id=BOT, eot_id=EOT, destination=model)
    questions.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}]}))
    ask = ("answer", f"--model={model}", "--max-new-tokens=8", str(questions))
    alone, before = run_trainer(*ask), children()
    with one_trainer():
        (process,) = set(children()) - set(before)
        with pytest.raises(PipelineError, match=r"states` ended with exit status 2: trainer: .*no\.yaml"):
            run_trainer("states", str(tmp_path / "no.yaml"))
        assert [run_trainer(*ask), run_trainer(*ask)] == [alone, alone]
        assert {*children()} - {*before} == {process}
        os.kill(process, signal.SIGKILL)
        with pytest.raises(PipelineError, match=r"ended by SIGKILL, .*: lower training\.micro_batch"):
            run_trainer(*ask)
    assert json.loads(alone)["unended"] is True
    assert children() == before
