"""Sizes by name, what they cost, memory that is taken late, and what is computed twice instead of kept."""

from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from tests.trainer.models import SHAPE
from tests.trainer.trained import trained
from trainer import hf
from trainer.config import InitConfig, LoraConfig, ModelConfig
from trainer.config.model import SIZES
from trainer.model.activation_checkpointing import ActivationCheckpointing
from trainer.model.attention import Backend, document_numbers
from trainer.model.joined_products import join_products, joined
from trainer.model.llama import Llama
from trainer.model.lora import adapt

INIT = InitConfig(std=0.2, zero_output=False)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("more", [{}, {"tie_embeddings": True, "qk_norm": True, "head_dim": 80}])
def test_the_parameters_of_a_size_are_those_that_transformers_counts(size: str, more: dict[str, Any]) -> None:
    config = ModelConfig.model_validate({"size": size, **more})
    values = hf.config_json(config, vocab_size=50_000, context=1024, bot_id=0, eot_id=1)
    with torch.device("meta"):
        peer = AutoModelForCausalLM.from_config(AutoConfig.for_model(values.pop("model_type"), **values))
    assert config.parameters(50_000) == peer.num_parameters()


def test_the_parameters_with_attention_sinks_are_those_of_the_model() -> None:
    config = ModelConfig(**SHAPE, attention_sinks=True)
    model = Llama(config, 320, 64, "math")
    assert config.parameters(320) == sum(parameter.numel() for parameter in model.parameters())
    model.initialize(INIT, seed=0)
    sinks = [one for name, one in model.named_parameters() if "sinks" in name]
    assert len(sinks) == 2
    assert not any(one.any() for one in sinks)


def test_a_size_is_named_alone_or_with_what_differs() -> None:
    assert ModelConfig.model_validate("171m") == ModelConfig.model_validate(SIZES["171m"])
    config = ModelConfig.model_validate({"size": "171m", "n_layers": 14, "qk_norm": True})
    assert (config.n_layers, config.d_model, config.qk_norm) == (14, 768, True)
    with pytest.raises(ValueError, match="unknown size '170m': use tiny, small, 171m, 1b, 7b, or give"):
        ModelConfig.model_validate({"size": "170m"})


@pytest.mark.parametrize("more", [{}, {"head_dim": 16, "tie_embeddings": True}])
def test_the_flops_of_a_token_are_those_that_torch_counts(more: dict[str, Any]) -> None:
    model = Llama(ModelConfig(**SHAPE, **more), 320, 64, "math")
    model.initialize(INIT, seed=0)
    with FlopCounterMode(display=False) as counter:
        model.logits(model(torch.zeros(3, 64, dtype=torch.int64))).sum().backward()
    assert counter.get_total_flops() == 3 * 64 * model.config.flops_per_token(320, 64)


def test_flops_are_counted_as_torchtitan_does_and_causal_ones_as_megatron_does() -> None:
    model = ModelConfig.model_validate({"size": "1b", "qk_norm": False, "tie_embeddings": True})
    # What get_nparams_and_flops of torchtitan 0.3.0 gives for its Llama 3 1B; it counts norms as products.
    norms = (2 * 16 + 1) * 2048
    assert model.flops_per_token(128_256, 4096) == 9_025_499_136 - 6 * norms
    assert model.flops_per_token(128_256, 8192) == 10_636_111_872 - 6 * norms
    # Megatron-LM: scores and sums for one half of the pairs, 3 passes of 2 operations.
    halved = 3 * 2 * (16 * 60_817_408 + 128_256 * 2048) + 16 * 3 * 2 * 2 * (32 * 64) * 4096 // 2
    assert model.flops_per_token(128_256, 4096, causal=True) == halved


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_built_without_memory_becomes_the_same_model(tied: bool) -> None:
    config = ModelConfig(**SHAPE, tie_embeddings=tied, rope_scaling={"rope_type": "linear", "factor": 2.0})
    direct = Llama(config, 300, 64, "math")
    direct.initialize(INIT, seed=3)
    with torch.device("meta"):
        late = Llama(config, 300, 64, "math")
    assert all(tensor.is_meta for tensor in (*late.parameters(), *late.buffers()))
    late.materialize(torch.device("cpu"))
    late.initialize(INIT, seed=3)
    assert (late.lm_head.weight is late.model.embed_tokens.weight) == tied
    for ours, theirs in zip(
        (*late.parameters(), *late.buffers()), (*direct.parameters(), *direct.buffers()), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_first_weights_are_a_function_of_seed_and_name() -> None:
    model = Llama(ModelConfig(**SHAPE), 300, 64, "math")
    model.initialize(InitConfig(), seed=7)
    generator = torch.Generator().manual_seed(
        int.from_bytes(blake2b(b"7/lm_head.weight", digest_size=8).digest(), "little") >> 1
    )
    drawn = torch.empty(320, SHAPE["d_model"]).normal_(0.0, 0.02, generator=generator)
    assert torch.equal(model.lm_head.weight[:300], drawn[:300])


def gradients(
    kind: ActivationCheckpointing, compiled: bool = False, backend: Backend = "sdpa", sinks: bool = False
) -> dict[str, torch.Tensor]:
    """Gradients on masked documents."""
    model = Llama(ModelConfig(**SHAPE, attention_sinks=sinks), 300, 64, backend, kind)
    model.initialize(INIT, seed=1)
    if compiled:
        for block in model.model.layers:
            block.compile(fullgraph=True, dynamic=False)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 300, (2, 33), generator=generator)
    hidden = model(tokens, document_numbers(tokens % 7, bot_id=0))
    (hidden * torch.randn(hidden.shape, generator=generator)).sum().backward()
    return {
        name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None
    }


@pytest.mark.parametrize("sinks", [False, True])
def test_activation_checkpointing_changes_no_bit_of_the_gradients_and_selective_repeats_no_product(
    sinks: bool,
) -> None:
    flops, found = {}, {}
    for kind in ("none", "selective", "full"):
        with FlopCounterMode(display=False) as counter:
            found[kind] = gradients(kind, sinks=sinks)
        flops[kind] = counter.get_total_flops()
    assert flops["none"] == flops["selective"] < flops["full"]
    for name, gradient in found["none"].items():
        assert torch.equal(gradient, found["selective"][name]), name
        assert torch.equal(gradient, found["full"][name]), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "backend", "sinks"),
    [
        *((kind, "sdpa", False) for kind in ("none", "selective", "full")),
        *(("none", "sdpa", True), ("selective", "math", True)),
    ],
)
def test_compiled_blocks_have_the_gradients_of_plain_ones(
    kind: ActivationCheckpointing, backend: Backend, sinks: bool
) -> None:
    plain = gradients("none", False, backend, sinks)
    compiled = gradients(kind, True, backend, sinks)
    for name, gradient in compiled.items():
        torch.testing.assert_close(
            gradient, plain[name], rtol=1e-4, atol=1e-5 * plain[name].abs().max().item(), msg=name
        )


@pytest.mark.slow
def test_more_steps_evaluations_and_document_boundaries_compile_nothing_anew(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    settings["training"] |= {"compile": True, "document_masking": True}
    settings["training"] |= {"activation_checkpointing": "selective"}
    settings["training"]["evaluation"]["every_tokens"] = 5 * 256
    graphs = []
    for steps in (10, 50):
        torch.compiler.reset()
        counters.clear()
        trained(settings, tmp_path / str(steps), max_tokens=steps * 256)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == graphs[1] > 0


def test_layers_joined_to_one_product_give_what_each_gives_and_their_gradients() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(32, width, bias=False) for width in (32, 16, 8)]
    x = torch.randn(2, 5, 32, requires_grad=True)
    inputs = [x, *(layer.weight for layer in layers)]
    apart, together = [layer(x) for layer in layers], joined(layers, x)
    for one, other in zip(apart, together, strict=True):
        torch.testing.assert_close(other, one)
    sums = [sum(part.square().sum() for part in parts) for parts in (apart, together)]
    expected, found = (torch.autograd.grad(total, inputs) for total in sums)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_blocks_with_joined_products_train_as_before_under_the_same_names(qk_norm: bool) -> None:
    """Compiled as on a GPU, where `compile_blocks` joins them."""
    found = []
    for joins in (False, True):
        model = Llama(ModelConfig.model_validate(SHAPE | {"qk_norm": qk_norm}), 300, 64, "math")
        model.initialize(INIT, seed=0)
        model.double()
        if joins:
            join_products(model.model.layers)
        products = []

        def counting(module: torch.fx.GraphModule, _: Any, products: list[int] = products) -> Any:
            products.append(sum("linear" in str(node.target) for node in module.graph.nodes))
            return module.forward

        torch.compiler.reset()
        for block in model.model.layers:
            block.compile(fullgraph=True, dynamic=False, backend=counting)
        model.logits(model(torch.arange(64)[None])).square().sum().backward()
        found.append({name: one.grad for name, one in model.named_parameters()})
        assert set(products) == {4 if joins else 7}
    torch.testing.assert_close(found[1], found[0])


def test_products_of_layers_with_an_adapter_are_not_joined() -> None:
    model = Llama(ModelConfig(**SHAPE), 300, 64, "math")
    adapt(model, LoraConfig(), seed=0)
    before = [type(module) for module in model.modules()]
    join_products(model.model.layers)
    assert [type(module) for module in model.modules()] == before
