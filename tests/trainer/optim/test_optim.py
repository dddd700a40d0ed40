"""Every optimizer follows its published rule, owns each parameter once, and goes on from its saved state as
if never stopped.
"""

import sys
from typing import Any

import pytest
import torch
from torch import nn
from transformers.optimization import Adafactor as TransformersAdafactor

from tests.trainer.steps import ALONE, new_session, step
from tests.trainer.trained import assert_resumes_to_the_same_bytes, trained
from trainer.config import OptimizerConfig, RunConfig
from trainer.model.llama import Llama
from trainer.model.precision import multiplies_bf16
from trainer.optim.build import build, set_learning_rates
from trainer.optim.second_pass import SecondPass
from trainer.optim.state import load_state_tensors, state_tensors
from trainer.system.errors import TrainerError

KINDS = ["adamw", "muon", "adafactor", "lion", "sophia"]
LR, DECAY, STEPS = 0.01, 0.1, 30
# The rate falls on the way, so that a rule that keeps its own would be seen.
FACTORS = [1 - step / 60 for step in range(STEPS)]
Weights = dict[str, torch.Tensor]


class Toy(nn.Module):
    """A matrix, which decays, and a norm, which does not."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.matrix = nn.Parameter(torch.randn(12, 8, generator=generator))
        self.norm = nn.Parameter(torch.ones(8))


def gradients() -> list[Weights]:
    generator = torch.Generator().manual_seed(1)
    scale = torch.logspace(-3, 1, 8)
    shapes = {"matrix": (12, 8), "norm": (8,)}
    return [
        {name: torch.randn(shape, generator=generator) * scale for name, shape in shapes.items()}
        for _ in range(STEPS)
    ]


def ours(kind: str) -> Weights:
    """The toy's weights after all steps."""
    model = Toy()
    wanted = {"kind": kind, "lr": LR, "muon_lr": LR, "weight_decay": DECAY}
    optimizers = build(model, OptimizerConfig.model_validate(wanted))
    for factor, given in zip(FACTORS, gradients(), strict=True):
        for name, parameter in model.named_parameters():
            parameter.grad = given[name].clone()
        set_learning_rates(optimizers, factor)
        for optimizer in optimizers:
            if isinstance(optimizer, SecondPass):
                optimizer.read_second_pass(torch.tensor(64))
            optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def start() -> Weights:
    return {name: parameter.detach().double() for name, parameter in Toy().named_parameters()}


def follow(optimizer_of: Any, schedule: bool = True) -> Weights:
    """The same steps with another library's optimizer, in float64."""
    weights = {name: nn.Parameter(weight) for name, weight in start().items()}
    groups = [
        {"params": [weights["matrix"]], "weight_decay": DECAY},
        {"params": [weights["norm"]], "weight_decay": 0.0},
    ]
    optimizer = optimizer_of(groups)
    for factor, wanted in zip(FACTORS, gradients(), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = LR * factor
        for name, weight in weights.items():
            weight.grad = wanted[name].double()
        optimizer.step()
    return {name: weight.detach() for name, weight in weights.items()}


def lion() -> Weights:
    """Chen et al. 2023, algorithm 2, with beta1 0.9 and beta2 0.99."""
    weights = start()
    momentum = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for factor, wanted in zip(FACTORS, gradients(), strict=True):
        for name, decay in (("matrix", DECAY), ("norm", 0.0)):
            gradient = wanted[name].double()
            update = torch.sign(0.9 * momentum[name] + 0.1 * gradient)
            weights[name] = weights[name] - LR * factor * (update + decay * weights[name])
            momentum[name] = 0.99 * momentum[name] + 0.01 * gradient
    return weights


def sophia() -> Weights:
    """The authors' sophia.py: the curvature is a moving average of squared gradients, and `bs` the tokens
    they are the mean over.
    """
    weights, rho, bs = start(), 0.04, 64
    average = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    hessian = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for factor, wanted in zip(FACTORS, gradients(), strict=True):
        for name, decay in (("matrix", DECAY), ("norm", 0.0)):
            gradient = wanted[name].double()
            hessian[name] = 0.99 * hessian[name] + 0.01 * gradient * gradient
            weights[name] = weights[name] * (1 - LR * factor * decay)
            average[name] = 0.965 * average[name] + 0.035 * gradient
            ratio = (average[name].abs() / (rho * bs * hessian[name] + 1e-15)).clamp(max=1)
            weights[name] = weights[name] - LR * factor * average[name].sign() * ratio
    return weights


def muon() -> Weights:
    """Jordan et al. 2024: the matrix by Newton-Schulz of its Nesterov momentum, everything else by AdamW."""
    weights = start()
    momentum = torch.zeros_like(weights["matrix"])
    for factor, wanted in zip(FACTORS, gradients(), strict=True):
        gradient = wanted["matrix"].double()
        momentum = 0.95 * momentum + 0.05 * gradient
        x = (0.05 * gradient + 0.95 * momentum).T
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        kept = weights["matrix"] * (1 - LR * factor * DECAY)
        weights["matrix"] = kept - LR * factor * (12 / 8) ** 0.5 * x.T
    return {**weights, "norm": follow(adamw)["norm"]}


def adamw(groups: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8, foreach=False)


def adafactor(groups: Any) -> torch.optim.Optimizer:
    return TransformersAdafactor(groups, lr=LR, scale_parameter=False, relative_step=False)


@pytest.mark.parametrize(
    ("kind", "reference", "tolerance"),
    [
        ("adamw", lambda: follow(adamw), 1e-6),
        ("muon", muon, 6e-3 if multiplies_bf16(ALONE.device) else 1e-5),
        ("adafactor", lambda: follow(adafactor), 1e-6),
        ("lion", lion, 1e-6),
        ("sophia", sophia, 1e-6),
    ],
)
def test_the_trajectory_is_that_of_the_published_rule(kind: str, reference: Any, tolerance: float) -> None:
    found, expected, begun = ours(kind), reference(), start()
    for name, weight in expected.items():
        assert (weight - begun[name]).abs().max() > 0.05
        torch.testing.assert_close(found[name].double(), weight, rtol=0, atol=tolerance)


@pytest.mark.slow
def test_eight_bit_moments_stay_close_to_adamw() -> None:
    pytest.importorskip("torchao", reason="the extra `torchao` is not installed")
    torch.manual_seed(0)
    models = [nn.Linear(64, 128, bias=False) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    before = models[0].weight.detach().clone()
    built = [
        build(model, OptimizerConfig.model_validate({"kind": kind, "lr": LR}))
        for model, kind in zip(models, ("adamw", "adamw_8bit"), strict=True)
    ]
    for _ in range(STEPS):
        gradient = torch.randn(128, 64)
        for model, optimizers in zip(models, built, strict=True):
            model.weight.grad = gradient.clone()
            optimizers[0].step()
    moved = models[0].weight - before
    assert (models[1].weight - models[0].weight).norm() < 0.05 * moved.norm()


def test_a_missing_torchao_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.optim", None)
    with pytest.raises(TrainerError, match=r"pip install -e '\.\[torchao\]'`, or set it to adamw"):
        build(Toy(), OptimizerConfig(kind="adamw_8bit"))


def test_a_machine_without_a_compiler_is_told_what_8_bits_need(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchao", reason="the extra `torchao` is not installed")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TrainerError, match="needs a C\\+\\+ compiler on a CPU: install g\\+\\+"):
        build(Toy(), OptimizerConfig(kind="adamw_8bit"))


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("adamw_8bit", marks=pytest.mark.slow)])
def test_a_run_that_resumes_from_a_checkpoint_ends_in_the_same_bytes(
    settings: dict[str, Any], kind: str
) -> None:
    if kind == "adamw_8bit":
        pytest.importorskip("torchao", reason="the extra `torchao` is not installed")
        settings["training"]["model"] |= {"d_model": 64, "d_ff": 64}  # smaller matrices stay in 32 bits
    settings["training"] |= {"optimizer": {"kind": kind}, "averaging": {"half_life_tokens": 512}}
    config = trained(settings)
    assert_resumes_to_the_same_bytes(config)


@pytest.mark.parametrize("kind", [*KINDS, "python"])
def test_groups_clipping_and_a_loss_scale_work_with_every_kind(settings: dict[str, Any], kind: str) -> None:
    named = {"python": "torch.optim:NAdam"} if kind == "python" else {}
    frozen = {"groups": [{"pattern": "lm_head*", "lr_multiplier": 0}]}
    settings["training"] |= {"precision": "fp16", "init": {"zero_output": False}}
    settings["training"]["optimizer"] = {"kind": kind, **named, **frozen, "max_grad_norm": 0.1}
    session = new_session(settings)
    session.context.loss_scale.value = 2.0**60  # overflows
    before = {name: parameter.detach().clone() for name, parameter in session.model.named_parameters()}
    assert step(session, 0).skipped
    assert all(torch.equal(one, before[name]) for name, one in session.model.named_parameters())
    session.context.loss_scale.value = 2.0**8
    assert not any(step(session, number).skipped for number in range(3))
    moved = {name for name, one in session.model.named_parameters() if not torch.equal(one, before[name])}
    assert moved == before.keys() - {"lm_head.weight"}
    assert all(one.isfinite().all() for one in session.model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_another_shape_is_refused(settings: dict[str, Any], kind: str) -> None:
    settings["training"]["optimizer"] = {"kind": kind, "lr": 1e-3}
    session = new_session(settings)
    step(session, 0)
    tensors = state_tensors(session.model, session.optimizers)
    key = next(key for key in tensors if not key.startswith("step") and "gate_proj" in key)
    with pytest.raises(ValueError, match="has shape"):
        load_state_tensors(session.model, session.optimizers, {key: torch.zeros(7, 7)})
    with pytest.raises(ValueError, match="belongs to the unknown parameter"):
        load_state_tensors(session.model, session.optimizers, {"exp_avg/nowhere": torch.zeros(7)})


def groups_of(optimizers: list[torch.optim.Optimizer]) -> list[dict[str, Any]]:
    return [group for optimizer in optimizers for group in optimizer.param_groups]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_has_exactly_one_rule_and_only_matrices_decay(
    config: RunConfig, kind: str, tied: bool
) -> None:
    shape = config.training.model.model_copy(update={"tie_embeddings": tied, "qk_norm": True})
    model = Llama(shape, 300, 32, "math")
    optimizers = build(model, OptimizerConfig.model_validate({"kind": kind, "weight_decay": 0.1}))
    owned = [one for group in groups_of(optimizers) for one in group["params"]]
    assert sorted(map(id, owned)) == sorted(map(id, model.parameters()))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying = [group for group in groups_of(optimizers) if group["weight_decay"]]
    decayed = {names[id(one)] for group in decaying for one in group["params"]}
    assert decayed == {name for name in names.values() if name.endswith(("proj.weight", "lm_head.weight"))}
    assert ("lm_head.weight" in decayed) is not tied


def test_groups_change_rate_and_decay_of_what_their_pattern_fits(config: RunConfig) -> None:
    model = Llama(config.training.model, 300, 32, "math")
    groups = [
        {"pattern": "*embed_tokens*", "lr_multiplier": 2.0, "weight_decay": 0.3},
        {"pattern": "model.layers.0.*", "lr_multiplier": 0.5},
        {"pattern": "*.down_proj.weight", "weight_decay": 0.0},
    ]
    rates = {"kind": "muon", "lr": 1.0, "muon_lr": 4.0, "weight_decay": 0.1}
    optimizers = build(model, OptimizerConfig.model_validate({**rates, "groups": groups}))
    found = {
        id(one): (group["base_lr"], group["weight_decay"])
        for group in groups_of(optimizers)
        for one in group["params"]
    }
    settings = {name: found[id(parameter)] for name, parameter in model.named_parameters()}
    assert settings["model.embed_tokens.weight"] == (2.0, 0.3)
    assert settings["lm_head.weight"] == (1.0, 0.1)
    assert settings["model.layers.0.mlp.down_proj.weight"] == (2.0, 0.1)
    assert settings["model.layers.0.input_layernorm.weight"] == (0.5, 0.0)
    assert settings["model.layers.1.mlp.down_proj.weight"] == (4.0, 0.0)


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        (
            ["*embed_token"],
            r"no parameter matches '\*embed_token'; the most similar are .*embed_tokens\.weight",
        ),
        (["*", "lm_head*"], r"every parameter that matches 'lm_head\*' is in an earlier group"),
    ],
)
def test_a_group_of_nothing_is_refused(config: RunConfig, patterns: list[str], says: str) -> None:
    model = Llama(config.training.model, 300, 32, "math")
    groups = [{"pattern": pattern} for pattern in patterns]
    with pytest.raises(TrainerError, match=says):
        build(model, OptimizerConfig.model_validate({"groups": groups}))
