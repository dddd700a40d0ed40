"""docs/trainer.md, `merge`: the mean of two variants is scored, and opened by other programs."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.integration.project import Project

pytestmark = pytest.mark.slow


def test_the_mean_of_two_variants_is_evaluated_exported_and_traced_to_both(another: Project) -> None:
    another.recipe["variants"] = {"hot": {"training": {"optimizer": {"lr": 1e-2}}}}
    another.command("variants", "run", "base", "hot")
    models = [another.variant_store(name).current("pretrained_model") for name in ("base", "hot")]
    names = [f"{model.path.name[:8]}-00000032" for model in models]
    said = another.command("merge", *names)
    name, bits, loss, checkpoint, export = re.fullmatch(
        r"(\S+): the mean of .*\n(\S+) bits per byte, loss (\S+) .*\ncheckpoint: (.*)\nexport: (.*)\n", said
    ).groups()

    saved = [another.home / "store/runs" / model.path.name / "checkpoints/step-00000032" for model in models]
    parents = [load_file(path / "hf/model.safetensors") for path in saved]
    made = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32).state_dict()
    for tensor in parents[0]:
        assert torch.equal(made[tensor], torch.stack([one[tensor] for one in parents]).mean(0))
    summary = another.command("summary", "--model", name)
    assert f"{float(bits):.3f} bits per byte" in summary and export in summary
    lineage = another.command("lineage", name)
    assert all(f"{one}, 50.0%" in lineage for one in names)
    held = float(re.search(r"([\d.]+) bits per byte", another.command("summary", "--model", checkpoint))[1])
    assert f"{held:.3f}" == f"{float(bits):.3f}"
    # What the recipe uses is still what it trained.
    assert another.store.current("pretrained_model").path == models[0].path
    assert Path(export).parts[-2] == "exported_model" and float(loss) > 0
