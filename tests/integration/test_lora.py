"""A model is taught by LoRA in the sections of a recipe, with the guarantees of a training of all weights."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.recipe.loading import load_recipe
from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.steps.model import evaluate
from pipeline.steps.training import plan
from pipeline.store import keys
from tests.integration.project import Project, conversations, make_chat_project, until
from tests.journeys.test_stopped import trainers
from tests.llama_cpp import LlamaCpp
from tests.rows import jsonl

pytestmark = pytest.mark.slow
LORA = {"rank": 8, "alpha": 16}
WEIGHTS = ("adapter/adapter_model.safetensors", "hf/model.safetensors")


def last_checkpoint(project: Project, section: str) -> Checkpoint:
    return plan.last_checkpoint(project.variant_store(section))


def exported(project: Project, section: str) -> Path:
    return project.variant_store(section).current(keys.EXPORTED_MODEL).directory()


def hashes(checkpoint: Checkpoint) -> dict[str, str]:
    """The sha256 of the adapter and of the merged weights."""
    files = json.loads((checkpoint.path / "manifest.json").read_text())["files"]
    return {name: files[name]["sha256"] for name in WEIGHTS}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A model whose tokenizer lacks control tokens: the section appends them, an adapter learns them."""
    project = make_chat_project(tmp_path_factory.mktemp("pretrained"))
    del project.recipe["tokenizer"]["chat"]
    sections = project.recipe["post_training"]
    sections["sft"]["training"] = {"lora": LORA, "learn": "last", "optimizer": {"lr": 1e-2}}
    sections["sft"]["epochs"] = 2
    project.make()
    return project


@pytest.fixture(scope="module")
def adapted(pretrained: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The model after `sft` by LoRA and `dpo` of all weights."""
    project = pretrained.copied(tmp_path_factory.mktemp("adapted"))
    project.make(job="align")
    return project


def test_peft_opens_the_adapter_over_the_base_and_it_is_the_exported_model(adapted: Project) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    base, merged = (
        transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).eval()
        for place in (exported(adapted, "base"), exported(adapted, "sft"))
    )
    ids = torch.randint(0, merged.config.vocab_size, (2, 60), generator=torch.Generator().manual_seed(0))
    assert merged.config.vocab_size > base.config.vocab_size
    base.resize_token_embeddings(merged.config.vocab_size)
    opened = peft.PeftModel.from_pretrained(base, last_checkpoint(adapted, "sft").path / "adapter").eval()
    with torch.no_grad():
        torch.testing.assert_close(opened(ids).logits, merged(ids).logits, rtol=1e-4, atol=1e-4)


def test_the_base_which_knows_no_conversations_is_compared_on_text_alone(adapted: Project) -> None:
    tuning = evaluate.read(adapted.variant_store("sft").current(keys.EVALUATION))["tuning"]
    assert tuning["losses"]["before"]["answers"] is None
    assert tuning["losses"]["before"]["text"]["loss"] > 0
    assert tuning["kinds"][-1]["stops after"] > 0.9 and "stops before" not in tuning["kinds"][-1]


def test_it_stops_after_an_answer_here_and_in_llama_cpp(adapted: Project, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    questions = [one["messages"][:1] for one in conversations()[:20]]
    file = tmp_path / "questions.jsonl"
    jsonl(file, *({"messages": one} for one in questions))
    model = f"--model={exported(adapted, 'sft')}"
    said = adapted.python("trainer", "answer", model, "--max-new-tokens=30", str(file))
    answers = [json.loads(line) for line in said.splitlines()]
    assert sum(one["stops"] for one in answers) >= 18
    adapted.command("export", "--format=gguf", "--variant=sft", f"-o={tmp_path / 'gguf'}")
    theirs = LlamaCpp(tmp_path / "gguf" / "tiny.gguf")
    for question, answer in zip(questions, answers, strict=True):
        found = theirs.answer(question, 30)["choices"][0]
        assert (found["message"]["content"], found["finish_reason"] == "stop") == (
            answer["text"],
            answer["stops"],
        )


def test_lineage_and_card_say_how_it_was_trained(adapted: Project) -> None:
    shown = " ".join(adapted.command("lineage", "--variant", "sft").split())
    assert "trained by LoRA of rank 8, alpha 16, beside these weights and merged with them" in shown
    assert "tiny after 16,384 tokens" in shown
    shown = " ".join(adapted.command("lineage", "--variant", "dpo").split())
    assert "started from tiny after" in shown and ", by LoRA of rank 8, alpha 16:" in shown
    card = (exported(adapted, "sft") / "README.md").read_text(encoding="utf-8")
    assert "| trained by | LoRA of rank 8, alpha 16, beside the weights of `tiny`; merged |" in card
    card = (exported(adapted, "dpo") / "README.md").read_text(encoding="utf-8")
    assert "which had been trained by LoRA of rank 8, alpha 16 on" in card
    assert "| trained by |" not in card


def test_preferences_are_learned_from_the_merged_weights(adapted: Project, tmp_path: Path) -> None:
    """By training all weights, and by an adapter of its own."""
    adapter_of_its_own(project := adapted.copied(tmp_path / "both")).make(job="align")
    sft = hashes(last_checkpoint(adapted, "sft"))
    for one in (adapted, project):
        assert hashes(last_checkpoint(one, "sft")) == sft
        lineage = last_checkpoint(one, "dpo").lineage
        assert lineage["pretrained"]["lineage"]["variant"] == "sft"
        evaluation = evaluate.read(one.variant_store("dpo").current(keys.EVALUATION))
        assert evaluation["tuning"]["losses"]["after"]["answers"]["accuracy"] > 0.5
    assert not (last_checkpoint(adapted, "dpo").path / "adapter").exists()
    settings = json.loads((last_checkpoint(project, "dpo").path / "adapter/adapter_config.json").read_text())
    assert settings["r"] == 4
    assert settings["base_model_name_or_path"] == str(last_checkpoint(project, "sft").path / "hf")


def adapter_of_its_own(project: Project) -> Project:
    project.recipe["post_training"]["dpo"]["training"] = {"lora": {"rank": 4}, "optimizer": {"lr": 1e-3}}
    return project


def test_killed_in_the_training_of_the_adapter_it_ends_in_the_same_bytes(
    adapted: Project, pretrained: Project, tmp_path: Path
) -> None:
    project = pretrained.copied(tmp_path / "killed")
    saved = (project.home / "store/runs").glob
    project.run_until(lambda: any(saved("*/checkpoints/step-*/adapter")), signal.SIGKILL, job="sft")
    until(lambda: not trainers(project), 30, lambda: "the trainer outlived the run that started it")
    said = project.make(job="sft")
    assert re.search("resumes from .*step-", said)
    assert hashes(last_checkpoint(project, "sft")) == hashes(last_checkpoint(adapted, "sft"))


def test_reproduce_writes_the_adapter_down(adapted: Project, tmp_path: Path) -> None:
    adapted.command("reproduce", "--variant=dpo", f"-o={tmp_path / 'again'}")
    recipe = load_recipe(tmp_path / "again" / "recipe.yaml")
    found: Any = recipe.tuned("sft").training
    assert (found.lora.rank, found.lora.alpha, found.learn) == (8, 16, "last")
    assert recipe.tuned("dpo").training.lora is None


def test_a_forgotten_conversation_takes_the_adapter_with_it(adapted: Project, tmp_path: Path) -> None:
    project = adapted.copied(tmp_path / "forgotten")
    tuned = [last_checkpoint(project, section).run for section in ("sft", "dpo")]
    word = conversations()[0]["id"]
    shown = project.command("forget", word, "--reason", "asked for", "--yes")
    assert all(run.name[:8] in shown for run in tuned)
    project.command("gc", "--forgotten")
    left = [path.parent.name for path in (project.home / "store/runs").glob("*/checkpoints")]
    assert left == [last_checkpoint(adapted, "base").run.name]
