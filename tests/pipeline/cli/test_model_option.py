"""Where `--model NAME` makes no sense, a command says so before it looks for anything."""

from pathlib import Path

import pytest

from pipeline.cli import main


@pytest.mark.parametrize("chosen", ["parquet", "megatron"])
def test_documents_and_tokens_are_of_no_model(
    chosen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", "--format", chosen, "--model", "6ddca120", "-o", str(out)]) == 2
    assert capsys.readouterr().err == "error: --model names a model: give --format gguf\n"
    assert not out.exists()


@pytest.mark.parametrize(
    "command",
    [["summary"], ["benchmark", "--on", "questions.jsonl"], ["push", "me/tiny"], ["report"]],
    ids=" ".join,
)
def test_a_model_is_named_by_itself_or_by_its_variant(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    item = '{"context": "The sky is", "continuations": [" blue", " green"], "gold": 0}\n'
    (tmp_path / "questions.jsonl").write_text(item)
    assert main([*command, "--model", "6ddca120", "--variant", "fast"]) == 2
    assert capsys.readouterr().err == "error: give one of --model and --variant\n"


def test_a_file_that_is_no_benchmark_by_its_name_is_refused_in_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["benchmark", "--on", "Questions.txt"]) == 2
    said = capsys.readouterr().err
    assert "must be lower-case letters, digits" in said and "a file of questions ends in .jsonl" in said
