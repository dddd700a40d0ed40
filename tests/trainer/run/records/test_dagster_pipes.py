"""What Dagster hears: read back with Dagster's own format; and that training goes on when nobody listens."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from dagster_pipes import PipesContext, encode_param

from tests.trainer.trained import trained
from trainer.config import RunConfig
from trainer.run.loop import run
from trainer.run.records.dagster_pipes import Reporter
from trainer.system.errors import TrainerError

CONTEXT = {"asset_keys": ["pretrained_model"], "run_id": "r", "job_name": "pretrain", "retry_number": 0}
CONTEXT |= {key: {} for key in ("code_version_by_asset_key", "provenance_by_asset_key", "extras")}
CONTEXT |= dict.fromkeys(("partition_key", "partition_key_range", "partition_time_window"))


@pytest.fixture
def messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that Dagster reads; the environment is what it gives to a process that it launches."""
    context, inbox = tmp_path / "context.json", tmp_path / "messages"
    context.write_text(json.dumps(CONTEXT))
    inbox.touch()
    monkeypatch.setattr(PipesContext, "_instance", None)  # one for each process, and a test is a process here
    monkeypatch.setenv("DAGSTER_PIPES_CONTEXT", encode_param({"path": str(context)}))
    monkeypatch.setenv("DAGSTER_PIPES_MESSAGES", encode_param({"path": str(inbox)}))
    return inbox


def received(inbox: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in inbox.read_text().splitlines()]
    return [line["params"]["payload"] for line in lines if line["method"] == "report_custom_message"]


def test_a_run_reports_its_start_metrics_evaluations_checkpoints_and_end_and_checkpoints_again(
    settings: dict[str, Any], messages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings["training"]["samples"] = {"prompts": ["the model"], "max_new_tokens": 4}
    config = trained(settings)
    found = received(messages)
    # A checkpoint is announced when it is committed, which may be after the evaluation of a later step.
    steps = {
        kind: [message.get("step") for message in found if message["kind"] == kind]
        for kind in ("checkpoint", "evaluation", "sample")
    }
    assert steps == {"checkpoint": [4, 8, 12], "evaluation": [6, 12], "sample": [6, 12]}
    assert found[0]["kind"] == "start" and found[1]["kind"] == "metrics"
    assert [message["kind"] for message in found[-2:]] == ["checkpoint", "end"]
    evaluations = [message for message in found if message["kind"] == "evaluation"]
    sample = next(message for message in found if message["kind"] == "sample")
    start, last, end = found[0], found[-2], found[-1]
    assert start["parameters"] == config.training.model.parameters(300)
    assert (start["processes"], start["resumed_from"]) == (1, None)
    assert (last["step"], last["tokens"], len(last["data_version"])) == (12, 12 * 256, 64)
    assert Path(last["path"]).name == "step-00000012"
    assert last["bits_per_byte"] == evaluations[-1]["bits_per_byte"] == end["evaluation"]["bits_per_byte"]
    assert evaluations[0]["per_corpus"].keys() == {"prose", "code"}
    assert sample["text"].startswith("the model")

    messages.write_text("")
    monkeypatch.setattr(PipesContext, "_instance", None)
    run(config)
    again = received(messages)
    first = [message for message in found if message["kind"] == "checkpoint"]
    assert [message for message in again if message["kind"] == "checkpoint"] == first[-2:]
    assert again[0]["resumed_from"].endswith("step-00000012")
    assert again[-1]["kind"] == "end"


def test_a_mistake_reaches_dagster_as_a_message(settings: dict[str, Any], messages: Path) -> None:
    settings["data"]["tokenizer_sha256"] = "0" * 64
    with pytest.raises(TrainerError, match="sha256"):
        run(RunConfig.model_validate(settings))
    assert [message["kind"] for message in received(messages)] == ["error"]
    assert "sha256" in received(messages)[0]["message"]


def test_training_goes_on_when_the_message_file_is_gone(messages: Path) -> None:
    reporter = Reporter(is_main=True)
    messages.unlink()
    messages.mkdir()
    with closing(reporter):
        reporter.send("checkpoint", step=1)
        reporter.send("checkpoint", step=2)


def test_without_dagster_and_on_other_processes_nothing_is_sent(
    messages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Reporter(is_main=False)) as other:
        other.send("start")
    monkeypatch.delenv("DAGSTER_PIPES_CONTEXT")
    with closing(Reporter(is_main=True)) as alone:
        alone.send("start")
    assert received(messages) == []
