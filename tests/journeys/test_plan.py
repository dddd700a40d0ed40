"""docs/trainer.md, "How long a plan says a run takes": a plan agrees with the run, and with itself."""

import json
import re
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline.recipe.loading import load_recipe, recipe_path
from tests.integration.project import ROOT, Project
from trainer.tools.planner.cli import main

PRESETS = sorted(path.stem for path in (ROOT / "pipeline/recipes").glob("*.yaml"))


def plan(*arguments: str) -> str:
    command = [sys.executable, "-m", "trainer", "plan", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_the_plan_of_a_recipe_and_that_of_its_run_are_what_was_trained(trained_folder: Project) -> None:
    weights = trained_folder.store.current("exported_model").path / "model.safetensors"
    with safe_open(weights, framework="np") as file:
        trained = sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118 (it is no mapping)
    (run,) = (trained_folder.home / "store/runs").iterdir()
    counts = trained_folder.store.current("pretrained_model").counts
    for planned in (trained_folder.write_recipe(), run):
        figures = json.loads(plan(str(planned), "--json"))
        assert (figures["parameters"], figures["tokens"]) == (trained, counts["tokens"])
        assert figures["seconds"] == pytest.approx(figures["tokens"] / figures["tokens_per_second"])
        assert figures["memory_bytes"] > 16 * trained  # weights, gradients and AdamW's two, in fp32


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_the_parameters_that_transformers_counts(
    preset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = load_recipe(recipe_path(preset))
    shape = recipe.training.model
    config = LlamaConfig(
        hidden_size=shape.d_model,
        intermediate_size=shape.d_ff,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads,
        num_key_value_heads=shape.n_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=recipe.tokenizer.vocab_size,
        tie_word_embeddings=shape.tie_embeddings,
    )
    with torch.device("meta"):
        theirs = sum(one.numel() for one in LlamaForCausalLM(config).parameters())
    asked = [preset, "--gpu=h200", "--gpus=8", "--price=3.5"]
    assert main([*asked, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    norms = 2 * shape.n_layers * shape.head_dim if shape.qk_norm else 0
    assert figures["parameters"] == theirs + norms
    assert figures["cost"] == pytest.approx(figures["seconds"] / 3600 * 8 * 3.5)
    assert main(asked) == 0
    shown = " ".join(capsys.readouterr().out.split())
    memory, available = re.search(r"Memory ([\d,]+) MB .* fits? into ([\d,]+) MB", shown).groups()
    assert int(memory.replace(",", "")) == pytest.approx(figures["memory_bytes"] / 1e6, abs=1)
    assert int(available.replace(",", "")) == pytest.approx(figures["available_bytes"] / 1e6, abs=1)
