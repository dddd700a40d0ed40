"""Tuning by LoRA: what an adapter learns, and that it is the same run however it is stopped."""

import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer.chats import BOT, CHAT, EOT, Chats
from tests.trainer.runs import outcome
from tests.trainer.steps import new_session
from tests.trainer.trained import trained
from trainer import hf
from trainer.config import LoraConfig, RunConfig
from trainer.model.lora import merged_parameters
from trainer.parallel.world import join
from trainer.run.fit.memory import Footprint
from trainer.run.loop import DONE, run
from trainer.system.errors import TrainerError


def adapted(settings: dict[str, Any], finished: RunConfig, chats: Chats) -> dict[str, Any]:
    """A run that adapts a pretrained model which has control tokens."""
    checkpoint = sorted(finished.run_dir.glob("checkpoints/*"))[-1]
    grown = new_session(pretrained(settings, checkpoint))
    hf.export(
        grown.model,
        chats.folder / "tokenizer",
        bot_id=BOT,
        eot_id=EOT,
        destination=finished.run_dir / "grown",
    )
    settings["training"]["pretrained"]["path"] = str(finished.run_dir / "grown")
    settings["training"]["lora"] = {"rank": 4, "alpha": 8}
    return settings


def pretrained(settings: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    settings["run_dir"] += "-tuned"
    settings["training"]["pretrained"] = {"path": str(checkpoint / "hf")}
    del settings["training"]["init"]
    return settings


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_a_stopped_adapter_goes_on_from_its_own_file_to_the_same_bytes(
    kind: str, request: pytest.FixtureRequest, finished: RunConfig, chats: Chats, tmp_path: Path
) -> None:
    settings = adapted(request.getfixturevalue(kind), finished, chats)
    whole = RunConfig.model_validate({**settings, "run_dir": str(tmp_path / "whole")})
    assert run(whole) == DONE
    run_dir = Path(settings["run_dir"])
    shutil.copytree(tmp_path / "whole", run_dir, dirs_exist_ok=True)
    (last,) = run_dir.glob("checkpoints/step-00000012")
    shutil.rmtree(last)
    trained(settings)
    assert outcome(run_dir) == outcome(tmp_path / "whole")
    files = [place / "checkpoints" / last.name / "adapter" for place in (run_dir, tmp_path / "whole")]
    assert file_bytes(files[0]) == file_bytes(files[1])
    base = load_file(finished.run_dir / "grown/model.safetensors")
    merged = load_file(last / "hf/model.safetensors")
    changed = {name for name, tensor in merged.items() if not torch.equal(tensor, base[name])}
    tokens = {"model.embed_tokens.weight", "lm_head.weight"}
    assert changed == {name for name in merged if name.endswith("_proj.weight")} | tokens
    for name in tokens:
        assert torch.equal(merged[name][:300], base[name][:300])


@pytest.mark.parametrize("changed", [{"rank": 8}, {"control_tokens": False}, None])
def test_an_adapter_of_another_shape_is_another_run_whatever_is_allowed(
    changed: dict[str, Any] | None, sft: dict[str, Any], finished: RunConfig, chats: Chats
) -> None:
    settings = adapted(sft, finished, chats)
    settings["training"]["max_tokens"] = 2 * settings["training"]["global_batch_tokens"]
    trained(settings)
    settings["training"] |= {
        "max_tokens": 2 * settings["training"]["max_tokens"],
        "lora": changed and settings["training"]["lora"] | changed,
    }
    with pytest.raises(TrainerError, match=r"cannot resume, even with --allow-changes: training\.lora\."):
        run(RunConfig.model_validate(settings), allow_changes=True)


def file_bytes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_an_adapter_takes_few_gradients(sft: dict[str, Any]) -> None:
    training = RunConfig.model_validate(sft).training
    lora = training.model_copy(update={"lora": LoraConfig(rank=1)})
    full, small = (Footprint.measure(one, 305, 1, torch.device("cpu")).memory() for one in (training, lora))
    assert small.gradients < full.gradients / 10 and small.optimizer < full.optimizer / 10


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"pretrained": None}, r"training\.lora needs pretrained weights: set training\.pretrained"),
        ({"parallel": {"dp_shard": 2}}, "lora needs a model that parallel does not split"),
        ({"optimizer": {"kind": "muon"}}, "lora needs optimizer.kind adamw"),
        ({"lora": {"alpha": 1e300}}, r"lora\.alpha\s+Input should be less than or equal to 1000000"),
        ({"dpo": {"beta": 1e300}}, r"dpo\.beta\s+Input should be less than or equal to 1000000"),
        ({"dpo": {"nll": 1e300}}, r"dpo\.nll\s+Input should be less than or equal to 1000000"),
    ],
)
def test_what_lora_needs_is_one_sentence(changed: dict[str, Any], says: str, sft: dict[str, Any]) -> None:
    del sft["training"]["init"]
    sft["training"] |= {"lora": {}, "pretrained": {"path": "base"}} | changed
    with pytest.raises(ValueError, match=says):
        RunConfig.model_validate(sft)


def test_an_adapter_of_an_adapter_is_refused_before_the_training(
    sft: dict[str, Any], finished: RunConfig, chats: Chats
) -> None:
    """Nobody could open it. All weights may be trained, since a model starts from the sum."""
    settings = adapted(sft, finished, chats)
    first = sorted(trained(settings).run_dir.glob("checkpoints/*/adapter"))[-1]
    apart = shutil.copytree(first, finished.run_dir / "apart")
    (apart / "tokenizer.json").write_bytes((first.parent / "hf/tokenizer.json").read_bytes())
    again = deepcopy(settings) | {"run_dir": f"{settings['run_dir']}-again"}
    again["training"]["pretrained"] = {"path": str(apart)}
    with pytest.raises(
        TrainerError, match=r"training\.lora: .*/apart is an adapter to .*/grown, and nothing opens"
    ):
        run(RunConfig.model_validate(again))
    again["training"] |= {"lora": None}
    trained(again)


@pytest.mark.parametrize("tied", [False, True])
def test_an_adapter_learns_control_tokens_that_the_model_has_never_seen(
    tied: bool, sft: dict[str, Any], chats: Chats, settings: dict[str, Any]
) -> None:
    settings["training"]["model"] |= {"tie_embeddings": tied}
    trained(settings)
    base = sorted(Path(settings["run_dir"]).glob("checkpoints/*"))[-1]
    chosen = pretrained(sft, base)
    chosen["training"] |= {"lora": {"rank": 4}, "optimizer": {"kind": "adamw", "lr": 1e-2}}
    chosen["training"]["model"] |= {"tie_embeddings": tied}
    config = trained(chosen)
    last = sorted(config.run_dir.glob("checkpoints/*"))[-1]
    before, after = (load_file(place / "hf/model.safetensors") for place in (base, last))
    names = ["model.embed_tokens.weight", *([] if tied else ["lm_head.weight"])]
    rows = load_file(last / "adapter/adapter_model.safetensors")
    assert len([name for name in rows if "token_adapter" in name]) == len(names)
    for name in names:
        assert torch.equal(after[name][:300], before[name])
        assert not (after[name][CHAT.end] == after[name][CHAT.tool]).any()
    model = new_session(config).model
    hf.load_adapter(model, last / "adapter")
    asked = torch.tensor([[BOT, CHAT.user, 10, CHAT.end, CHAT.assistant, 11, 12]])
    with torch.no_grad():
        likely = model.logits(model(asked))[0, -1, 300:305]
    assert likely.argmax() == CHAT.end - 300
    assert likely[CHAT.end - 300] - likely[CHAT.tool - 300] > 0.3  # they began alike


def test_control_tokens_that_an_adapter_would_not_learn_are_refused(
    sft: dict[str, Any], finished: RunConfig
) -> None:
    settings = pretrained(sft, sorted(finished.run_dir.glob("checkpoints/*"))[-1])
    settings["training"]["lora"] = {"control_tokens": False}
    with pytest.raises(
        TrainerError, match=r"lacks the control tokens, and training\.lora would not learn them"
    ):
        run(RunConfig.model_validate(settings))


@pytest.mark.parametrize(
    ("shape", "changed"),
    [
        ({"tie_embeddings": True}, {"lora": {"rank": 200, "alpha": 8}, "precision": "bf16"}),  # above d_model
        pytest.param(
            {"attention_sinks": True}, {"averaging": {"half_life_tokens": 2048}}, marks=pytest.mark.slow
        ),
        pytest.param({}, {"precision": "fp16", "dropout": 0.1, "learn": "last"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_with_any_other_setting_it_resumes_and_its_sum_with_the_base_is_what_is_exported(
    shape: dict[str, Any],
    changed: dict[str, Any],
    sft: dict[str, Any],
    settings: dict[str, Any],
    tmp_path: Path,
) -> None:
    settings["training"] |= {"max_tokens": 1024, "checkpoint": {"every_tokens": 1024}}
    settings["training"]["model"] |= shape
    trained(settings)
    chosen = pretrained(sft, sorted(Path(settings["run_dir"]).glob("checkpoints/*"))[-1])
    chosen["training"] |= {"lora": {"rank": 4}} | changed
    chosen["training"]["model"] |= shape
    whole, run_dir = tmp_path / "whole", Path(chosen["run_dir"])
    trained(chosen, whole)
    shutil.copytree(whole, run_dir)
    last = sorted(run_dir.glob("checkpoints/*"))[-1]
    shutil.rmtree(last)
    config = trained(chosen)
    assert outcome(run_dir) == outcome(whole)
    # On the device of the run, which decides how a product is rounded.
    model = new_session(config, join(config.training.parallel)).model
    merged = load_file(last / "hf/model.safetensors")
    hf.load_adapter(model, last / "adapter")
    for name, tensor in merged_parameters(model):
        assert torch.equal(tensor[: len(merged[name])].cpu(), merged[name]), name
