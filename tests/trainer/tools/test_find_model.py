"""Commands that take a model find it from whatever a person has at hand."""

import json
import shutil
from pathlib import Path

import pytest

from trainer import hf
from trainer.__main__ import main
from trainer.system.errors import USER_ERROR, TrainerError

pytestmark = pytest.mark.usefixtures("trainer_environment")


@pytest.fixture
def trained(finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run in a store."""
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    return shutil.copytree(finished_once, tmp_path / "store/runs/6ddca1201f00aa11")


def test_a_model_is_found_by_its_run_a_checkpoint_an_export_or_its_name_in_the_ui(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last, before = (trained / "checkpoints" / f"step-{step:08d}" for step in (12, 8))
    exports = tmp_path / "store/exported_model"
    shutil.copytree(last / "hf", exports / "0123")

    def written(model: Path | str) -> str:
        capsys.readouterr()
        arguments = ["--prompt", "the model", "--max-new-tokens", "12", "--temperature", "0"]
        assert main(["generate", "--model", str(model), *arguments]) == 0
        return capsys.readouterr().out

    text = written(last)
    assert text.startswith("the model")
    places = [trained, last / "hf", exports / "0123"]
    assert all(written(place) == text for place in [*places, "6ddca120", "6ddca120-00000012"])
    assert written("6ddca120-8") == written(before)
    capsys.readouterr()
    scores = []
    for named in (last / "hf", "6ddca120-00000012"):
        assert main(["evaluate", "--model", str(named)]) == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert all(found == scores[0] for found in scores)


def test_a_directory_without_a_model_is_refused_with_what_is_wanted(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(command: str, named: Path | str) -> str:
        prompt = ["--prompt", "the"] if command == "generate" else []
        assert main([command, "--model", str(named), *prompt]) == USER_ERROR
        return capsys.readouterr().err

    exports = tmp_path / "store/exported_model"
    shutil.copytree(trained / "checkpoints/step-00000012/hf", exports / "0123")
    assert "no model is there. Give the directory of an exported model" in refused("generate", exports)
    assert "no model is there. Give the directory" in refused("check", tmp_path)
    assert "an exported model, without its held-out text" in refused("evaluate", exports / "0123")
    assert "steps of the run that are: 8, 12" in refused("generate", "6ddca120-4")
    assert "no run of this name in" in refused("check", "0123abcd")


def test_a_store_in_a_bucket_is_refused_with_the_command_that_finds_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GROUNDWORK_STORE", "s3://bucket/x")
    assert main(["check", "--model", "6ddca120"]) == USER_ERROR
    assert "GROUNDWORK_STORE is s3://bucket/x, and the trainer reads directories" in capsys.readouterr().err


def test_an_adapter_is_refused_with_the_model_that_it_is_merged_with(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = trained / "checkpoints/step-00000012"
    alone = tmp_path / "from the hub"
    merged = f"{last / 'adapter'}: holds an adapter, not a model: name {last / 'hf'}, which"
    for place, told in ((last / "adapter", merged), (alone, "base_model_name_or_path: ")):
        place.mkdir()
        (place / "adapter_config.json").write_text("{}")
        assert main(["check", "--model", str(place)]) == USER_ERROR
        assert told in capsys.readouterr().err
        with pytest.raises(TrainerError, match=told):
            hf.model_config(place)
