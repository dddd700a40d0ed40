"""After trainings with other settings: which model a command takes, and how a person names another."""

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import constants
from safetensors.numpy import load_file

from pipeline.cli import main
from pipeline.steps.model.evaluate import evaluate_checkpoint
from pipeline.store import keys
from tests.integration.project import Project
from tests.journeys.test_benchmarks import ask
from tests.pipeline.steps.export.hub_server import UploadHub
from tests.servers import serving

pytestmark = pytest.mark.slow
CHANGES: dict[str, Any] = {"training": {"optimizer": {"lr": 1e-2}}}
TOKEN = "hf_secret-of-the-test"


class Trained:
    """A store with the recipe's model and then one with other settings; commands as a user types them."""

    def __init__(self, project: Project, capfd: pytest.CaptureFixture[str]) -> None:
        self.project, self._capfd = project, capfd
        self.own, self.other = project.store, project.store_of(CHANGES)
        self.first, self.name = (
            store.current(keys.PRETRAINED_MODEL).path.name[:8] for store in (self.own, self.other)
        )
        (self.run,) = (self.own.root / keys.RUNS).glob(f"{self.name}*")
        self.exported = self.other.current(keys.EXPORTED_MODEL)
        steps = sorted(path.name for path in self.run.glob("checkpoints/step-*"))
        self.before, self.final = (f"{self.name}-{step.removeprefix('step-')}" for step in steps)

    def told(self, *arguments: str | Path, status: int = 0) -> tuple[str, str]:
        """Standard output and standard error of a command that ends with this status."""
        self._capfd.readouterr()
        found = main([str(argument) for argument in arguments])
        said = self._capfd.readouterr()
        assert found == status, said.err
        return said.out, said.err


@pytest.fixture(scope="module")
def project(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    directory = tmp_path_factory.mktemp("trained")
    project = finished.copied(directory / "project")
    settings = {"resources": {"workshop": {"config": {"overrides": CHANGES}}}}
    (directory / "faster.yaml").write_text(yaml.safe_dump(settings))
    project.make("-c", str(directory / "faster.yaml"))
    return project


@pytest.fixture
def trained(project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Trained:
    project.enter(monkeypatch)
    return Trained(project, capfd)


def test_the_summary_says_which_run_it_shows_and_which_trainings_are_newer(trained: Trained) -> None:
    out, _ = trained.told("summary")
    line = rf"Run tiny {trained.first}, variant base, trained 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    newer = f"; 1 newer one was trained with other settings: {trained.name}; --model NAME takes one"
    assert re.fullmatch(line + re.escape(newer), out.splitlines()[0])
    assert f"Model        {trained.own.current(keys.EXPORTED_MODEL).path}\n" in out

    runs, begun = trained.own.root / keys.RUNS, time.time()
    copies = [runs / f"{digit * 16}" for digit in "abc"]
    config = yaml.safe_load((trained.run / "config.yaml").read_text())
    tuned = config | {"training": config["training"] | {"objective": "sft"}}
    others = {runs / ("e" * 16): yaml.safe_dump(tuned), runs / ("f" * 16): "\0"}
    try:
        for age, copy in enumerate(copies):  # begun by a person who came later, and not ended yet
            shutil.copytree(trained.run, copy)
            os.utime(copy / "config.yaml", (begun + 60 * age, begun + 60 * age))
        shutil.copytree(trained.run, runs / ("d" * 16), ignore=shutil.ignore_patterns("checkpoints"))
        for other, settings in others.items():  # tuned later, and damaged
            shutil.copytree(trained.run, other)
            (other / "config.yaml").write_text(settings)
        out, _ = trained.told("summary")
        names = f"{'c' * 8}, {'b' * 8}, {'a' * 8}"
        newer = f"; 4 newer ones were trained with other settings: {names}; --model NAME takes one"
        assert re.fullmatch(line + re.escape(newer), out.splitlines()[0])
    finally:
        for copy in (*copies, runs / ("d" * 16), *others):
            shutil.rmtree(copy)


def test_the_newest_training_is_not_told_of_newer_ones(trained: Trained) -> None:
    trained.project.recipe["training"] |= {"optimizer": {"kind": "adamw", "lr": 1e-2}}
    try:
        trained.project.write_recipe()
        out, _ = trained.told("summary")
    finally:
        trained.project.recipe["training"] |= {"optimizer": {"kind": "adamw", "lr": 3e-3}}
        trained.project.write_recipe()
    assert re.fullmatch(
        rf"Run tiny lr 0.01 {trained.name}, variant base, trained [\d:TZ-]+", out.splitlines()[0]
    )


def test_the_summary_shows_the_run_that_is_named(trained: Trained) -> None:
    out, _ = trained.told("summary", "--model", trained.name)
    assert re.match(
        rf"Model        {trained.exported.path}\nTraining     16,384 tokens in [\d.]+ (s|min), ", out
    )
    evaluation = trained.other.current(keys.EVALUATION).only("evaluation").read_text()
    assert f"Validation   {json.loads(evaluation)['bits_per_byte']:.3f} bits per byte on " in out
    assert "Sample for 'Return the':" in out and "newer" not in out
    final = trained.run / "checkpoints" / f"step-{trained.final.rpartition('-')[2]}"
    for same in (trained.final, trained.run, final, trained.exported.path):
        assert trained.told("summary", "--model", same)[0] == out


def test_the_summary_shows_a_checkpoint_as_far_as_it_is_known(trained: Trained) -> None:
    out, _ = trained.told("summary", "--model", trained.before)
    step = trained.before.rpartition("-")[2]
    path = trained.run / "checkpoints" / f"step-{step}"
    tokens = json.loads((path / "lineage.json").read_text())["training"]["tokens"]
    assert re.match(rf"Model        {path}\nTraining     {tokens:,} tokens in [\d.]+ (s|min), ", out)
    records = [json.loads(line) for line in (trained.run / "metrics.jsonl").read_text().splitlines()]
    last = [one for one in records if one["kind"] == "evaluation" and one["step"] <= int(step)][-1]
    said = f"Validation   {last['bits_per_byte']:.3f} bits per byte at step {last['step']}, during training\n"
    assert said in out and "Sample" not in out

    evaluated = evaluate_checkpoint(trained.own, trained.before).only("evaluation").read_text()
    out, _ = trained.told("summary", "--model", path)
    assert f"Validation   {json.loads(evaluated)['bits_per_byte']:.3f} bits per byte\n" in out


def test_a_named_model_is_exported_as_gguf(trained: Trained, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    from gguf import GGUFReader

    own = tmp_path / "own"
    _, err = trained.told("export", "--format", "gguf", "-o", own)
    assert err.startswith(f"Run tiny {trained.first}, variant base, trained ")
    assert json.loads((own / "export.json").read_text())["made_from"] == {
        keys.EXPORTED_MODEL: trained.own.current(keys.EXPORTED_MODEL).data_version
    }
    before = trained.run / "checkpoints" / f"step-{trained.before.rpartition('-')[2]}" / "hf"
    for name, weights in ((trained.name, trained.exported.path), (trained.before, before)):
        out = tmp_path / name
        trained.told("export", "--format", "gguf", "--model", name, "-o", out)
        (embedding,) = [
            one for one in GGUFReader(out / "tiny.gguf").tensors if one.name == "token_embd.weight"
        ]
        wanted = load_file(weights / "model.safetensors")["model.embed_tokens.weight"]
        np.testing.assert_array_equal(embedding.data, wanted)
        made_from = json.loads((out / "export.json").read_text())["made_from"]
        assert [*made_from] == [keys.EXPORTED_MODEL if name == trained.name else trained.before]


def test_a_named_model_is_pushed_and_a_checkpoint_is_not(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(UploadHub(TOKEN)) as hub:
        settings = {"ENDPOINT": hub.url, "HF_TOKEN_PATH": str(tmp_path / "token"), "HF_HUB_DISABLE_XET": True}
        for setting, value in settings.items():
            monkeypatch.setattr(constants, setting, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        _, err = trained.told("push", "me/tiny", "--model", trained.before, status=2)
        assert "is not an exported model" in err and not hub.files
        trained.told("push", "me/tiny", "--model", trained.name)
        pushed = hub.files["me/tiny"]["model.safetensors"]
        assert pushed == (trained.exported.path / "model.safetensors").read_bytes()
        out, err = trained.told("push", "me/own")
        assert out.startswith(hub.url) and f"Run tiny {trained.first}, variant base, trained " in err
        assert hub.files["me/own"]["model.safetensors"] != pushed


def test_a_named_model_answers_benchmarks(trained: Trained, tmp_path: Path) -> None:
    on = ("benchmark", "--on", ask(tmp_path / "chapters.jsonl", words=9), "--json")
    out, err = trained.told(*on)
    assert err.startswith(f"Run tiny {trained.first}, variant base, trained ")
    scores = {"": json.loads(out)["chapters"]}
    for name in (trained.name, str(trained.exported.path), trained.before):
        scores[name] = json.loads(trained.told(*on, "--model", name)[0])["chapters"]
    assert scores[trained.name] == scores[str(trained.exported.path)]
    bits = {name: found["bits_per_byte"]["value"] for name, found in scores.items()}
    assert len(set(bits.values())) == 3


def test_what_is_no_model_or_is_gone_is_refused(trained: Trained, tmp_path: Path) -> None:
    questions = ask(tmp_path / "chapters.jsonl", words=9)
    for name, said in (
        (f"{trained.name}-00000001", "is not on disk: `checkpoint.keep_last` sets how many stay. On disk: "),
        ("0123abcd", f"no run of this name in {trained.own.root / keys.RUNS}"),
        (str(tmp_path), "no model is there. Give the directory of an exported model"),
        ("nowhere", "no model is there. Give the directory of an exported model"),
    ):
        for command in (
            ["summary"],
            ["benchmark", "--on", str(questions)],
            ["push", "me/tiny"],
            ["export", "--format", "gguf", "-o", "out"],
        ):
            assert said in trained.told(*command, "--model", name, status=2)[1]
