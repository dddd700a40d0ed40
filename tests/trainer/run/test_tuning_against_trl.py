"""Fifty steps on answers and on preferences, beside TRL's trainers on the same conversations of each step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.trainer.chats import BOT, CONTROL, EOT, Chats, Turns, conversations, preferences
from tests.trainer.runs import history
from tests.trainer.steps import new_session
from tests.trainer.trained import trained
from trainer import hf
from trainer.config import LoraConfig, PretrainedConfig
from trainer.model.lora import adapters

STEPS, BETA, LORA_LR = 50, 0.1, 3e-3
ADAMW = {"kind": "adamw", "betas": [0.9, 0.999], "weight_decay": 0.0, "lr": 3e-4}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}[ASSISTANT]{% generation %}"
    "{{ m['content'] }}[END]{% endgeneration %}{% else %}[{{ m['role'] | upper }}]{{ m['content'] }}[END]"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}[ASSISTANT]{% endif %}"
)


@pytest.fixture
def start(sft: dict[str, Any], chats: Chats, tmp_path: Path) -> Path:
    """A model to tune, as transformers opens it."""
    transformers = pytest.importorskip("transformers")
    model = new_session(sft).model
    hf.export(model, chats.folder / "tokenizer", bot_id=BOT, eot_id=EOT, destination=tmp_path / "start")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "start")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path / "start")
    assert tokenizer.convert_tokens_to_ids(CONTROL) == list(range(300, 305))
    return tmp_path / "start"


def ours(
    settings: dict[str, Any], start: Path, lora: dict[str, int] | None = None
) -> tuple[list[dict[str, Any]], list[list[tuple[int, ...]]]]:
    """The metrics of each step, and the ids of its documents."""
    settings["training"] |= {
        "pretrained": {"path": str(start)},
        "max_tokens": STEPS * 1024,
        "optimizer": ADAMW,
        "schedule": {"kind": "constant", "warmup_tokens": 0},
        "checkpoint": {"every_tokens": STEPS * 1024},
    }
    del settings["training"]["init"]
    if lora:
        settings["training"] |= {"lora": lora, "optimizer": ADAMW | {"lr": LORA_LR}}
    config = trained(settings)
    data, read = new_session(config).plan.data, []
    for number in range(STEPS):
        tokens = data.batch(number, 0, 1).ravel()
        tokens = tokens[tokens >= 0]
        starts = np.flatnonzero(tokens == BOT)
        read.append([tuple(part.tolist()) for part in np.split(tokens, starts)[1:]])
    return [one for one in history(config.run_dir) if one["kind"] == "train"], read


def theirs(
    kind: str, start: Path, rows: list[dict[str, Any]], batches: list[list[int]], adapter: Path | None = None
) -> list[dict[str, float]]:
    """What TRL logs of each step, on these rows in these batches."""
    trl, transformers = pytest.importorskip("trl"), pytest.importorskip("transformers")
    datasets = pytest.importorskip("datasets")
    base = {"sft": trl.SFTTrainer, "dpo": trl.DPOTrainer}[kind]

    class InOrder(base):  # type: ignore[misc, valid-type]
        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(
                self.train_dataset, batch_sampler=batches, collate_fn=self.data_collator
            )

    common = {
        "output_dir": str(start.parent / "trl"), "max_steps": STEPS,
        "learning_rate": LORA_LR if adapter else ADAMW["lr"],
        "lr_scheduler_type": "constant", "weight_decay": 0.0, "max_grad_norm": 1.0, "optim": "adamw_torch",
        "logging_steps": 1, "report_to": "none", "use_cpu": True, "bf16": False, "disable_tqdm": True,
        "save_strategy": "no", "gradient_checkpointing": False,
    }  # fmt: skip
    kinds = {
        "sft": (trl.SFTConfig, {"assistant_only_loss": True}),
        "dpo": (trl.DPOConfig, {"beta": BETA, "precompute_ref_log_probs": True}),
    }
    config, more = kinds[kind]
    model = transformers.AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    if adapter is not None:
        model = pytest.importorskip("peft").PeftModel.from_pretrained(model, adapter, is_trainable=True)
        model.get_output_embeddings().bias = None  # which TRL reads and peft's wrapper lacks
    trainer = InOrder(
        model=model,
        args=config(**common, **more),
        processing_class=transformers.AutoTokenizer.from_pretrained(start),
        train_dataset=datasets.Dataset.from_list(rows),
    )
    trainer.train()
    trainer.save_model(str(start.parent / "trl"))
    return [logs for logs in trainer.state.log_history if "grad_norm" in logs]


def messages(turns: Turns) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in turns]


def assert_same(
    steps: list[dict[str, Any]], peer: list[dict[str, float]], run_dir: str, trained: Path
) -> None:
    assert len(steps) == len(peer) == STEPS
    for one, other in zip(steps, peer, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5), one["step"]
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4), one["step"]
    (checkpoint,) = Path(run_dir).glob("checkpoints/*")
    (file,) = trained.glob("*.safetensors")
    weights = load_file(checkpoint / ("hf" if file.name == "model.safetensors" else "adapter") / file.name)
    for name, tensor in load_file(file).items():
        assert (weights[name] - tensor).abs().max() < 1e-4, name


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8}])
def test_answers_are_learned_as_by_trl_and_peft(
    lora: dict[str, int] | None, sft: dict[str, Any], chats: Chats, start: Path
) -> None:
    steps, read = ours(sft, start, lora)
    talks = conversations(60, 1)
    number = {tuple(chats.ids(turns)): place for place, turns in enumerate(talks)}
    batches = [[number[ids] for ids in documents] for documents in read]
    assert max(map(len, batches)) > 8  # packed, where TRL pads
    rows = [{"messages": messages(turns)} for turns in talks]
    adapter = None
    if lora:
        adapter, untrained = start.parent / "adapter", new_session(sft)
        config, base, tokens = LoraConfig(**lora), PretrainedConfig(path=start), list(range(300, 305))
        hf.save_adapter(adapters(untrained.model), config, base, adapter, tokens)
    peer = theirs("sft", start, rows, batches, adapter)
    assert_same(steps, peer, sft["run_dir"], start.parent / "trl")
    assert 1 < steps[-1]["loss"] < steps[0]["loss"] - (0.2 if lora else 1)
    if lora:
        (checkpoint,) = Path(sft["run_dir"]).glob("checkpoints/*")
        merged_is_base_with_adapter(checkpoint, start)


def merged_is_base_with_adapter(checkpoint: Path, start: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    base, merged = (
        transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).eval()
        for place in (start, checkpoint / "hf")
    )
    tokens = torch.randint(0, 305, (2, 100), generator=torch.Generator().manual_seed(0))
    before = base(tokens).logits
    adapted = peft.PeftModel.from_pretrained(base, checkpoint / "adapter").eval()
    torch.testing.assert_close(merged(tokens).logits, adapted(tokens).logits, rtol=1e-5, atol=1e-5)
    assert (merged(tokens).logits - before).abs().max() > 0.01


@pytest.mark.slow
def test_preferences_are_learned_as_by_trl(dpo: dict[str, Any], chats: Chats, start: Path) -> None:
    dpo["training"]["dpo"] = {"beta": BETA, "nll": 0}
    steps, read = ours(dpo, start)
    pairs = preferences(60, 1)
    number = {
        (tuple(chats.ids(chosen)), tuple(chats.ids(rejected))): place
        for place, (chosen, rejected) in enumerate(pairs)
    }
    batches = [[number[pair] for pair in zip(ids[::2], ids[1::2], strict=True)] for ids in read]
    rows = [
        {"prompt": messages(asked), "chosen": messages([better]), "rejected": messages([worse])}
        for (*asked, better), (*_, worse) in pairs
    ]
    peer = theirs("dpo", start, rows, batches)
    assert_same(steps, peer, dpo["run_dir"], start.parent / "trl")
    for one, other in zip(steps, peer, strict=True):
        assert BETA * one["margin"] == pytest.approx(other["rewards/margins"], abs=1e-4)
        if one["step"] > 1:  # at first all margins are rounding
            assert one["accuracy"] == pytest.approx(other["rewards/accuracies"])
    assert steps[-1]["loss"] > 0.05
