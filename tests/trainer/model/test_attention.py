"""Each backend of attention against a plain float64 reference, forward and backward."""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask

from trainer.config import ModelConfig
from trainer.model.attention import (
    Backend,
    attention,
    choose_backend,
    document_mask,
    document_numbers,
    flash,
    masks_documents,
)
from trainer.model.attention.documents import compiled_block_mask
from trainer.system.errors import TrainerError

GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(
    not GPU, reason="no CUDA GPU: flex has no backward pass on a CPU, FlashAttention no CPU kernel"
)


def reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    documents: torch.Tensor | None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Softmax over the positions that each one may see, listed one by one, and over the sink of the head,
    which has no value.
    """
    length, total = query.shape[2], key.shape[2]
    seen = [
        [
            [s <= here and (documents is None or row[s] == row[here]) for s in range(total)]
            for here in range(total - length, total)
        ]
        for row in (documents.tolist() if documents is not None else [[]] * len(query))
    ]
    key, value = (tensor.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for tensor in (key, value))
    scores = (query @ key.mT / math.sqrt(query.shape[3])).masked_fill(~torch.tensor(seen)[:, None], -math.inf)
    if sinks is not None:
        column = sinks[:, None, None].expand(*scores.shape[:3], 1)
        return torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., :-1] @ value
    return scores.softmax(dim=-1) @ value


def compare(
    backend: Backend,
    kv_heads: int,
    length: int,
    total: int,
    masked: bool,
    dtype: torch.dtype,
    head_dim: int = 8,
    with_sinks: bool = False,
) -> None:
    """Outputs and, where gradients are on, their gradients against the reference."""
    device = torch.device("cuda" if GPU else "cpu")
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 4, length, head_dim), (2, kv_heads, total, head_dim), (2, kv_heads, total, head_dim))
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    if with_sinks:
        tensors.append(2 * torch.randn(4, generator=generator))
    tokens = torch.randint(0, 4, (2, total), generator=generator)
    documents = document_numbers(tokens, bot_id=0) if masked else None
    weights = torch.randn(shapes[0], generator=generator).to(dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2

    exact = [tensor.double().requires_grad_(torch.is_grad_enabled()) for tensor in tensors]
    expected = reference(*exact[:3], documents, *exact[3:])
    fast = [tensor.to(device).requires_grad_(torch.is_grad_enabled()) for tensor in tensors]
    mask = document_mask(documents.to(device) if documents is not None else None, length, backend)
    found = attention(*fast[:3], backend, mask=mask, sinks=fast[3] if fast[3:] else None)
    torch.testing.assert_close(found.double().cpu(), expected, rtol=tolerance, atol=tolerance)
    if not torch.is_grad_enabled():
        return
    (expected * weights.double()).sum().backward()
    (found * weights.to(device)).sum().backward()
    for ours, theirs in zip(fast, exact, strict=True):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad.double().cpu(), theirs.grad, rtol=10 * tolerance, atol=tolerance)


# Of those that run here, and whether with attention sinks, which flash has none of.
BACKENDS = [("math", False), ("math", True), ("sdpa", False), ("sdpa", True)]


@pytest.mark.parametrize(("backend", "sinks"), [*BACKENDS, ("flash", False)])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize(("length", "total"), [(13, 13), (5, 13), (1, 8)])
@pytest.mark.parametrize("masked", [False, True])
def test_a_backend_equals_the_reference(
    backend: Backend, sinks: bool, kv_heads: int, length: int, total: int, masked: bool
) -> None:
    compare(backend, kv_heads, length, total, masked, torch.float32, with_sinks=sinks)


@pytest.mark.parametrize(("backend", "sinks"), BACKENDS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_backend_equals_the_reference_at_lengths_of_several_blocks_in_each_type(
    backend: Backend, sinks: bool, masked: bool, dtype: torch.dtype
) -> None:
    compare(backend, 2, 131, 131, masked, dtype, head_dim=16, with_sinks=sinks)


@pytest.mark.parametrize("backend", ["math", "sdpa"])
@pytest.mark.parametrize("sink", [-300.0, 300.0])
def test_a_sink_of_any_size_leaves_outputs_and_gradients_finite(backend: Backend, sink: float) -> None:
    # Scores of a standard deviation of 9, so that the sink is far above or far below all of them.
    tensors = [torch.randn(1, 2, 9, 8).mul(3).requires_grad_() for _ in range(3)]
    sinks = torch.full((2,), sink, requires_grad=True)
    found = attention(*tensors, backend, sinks=sinks)
    without = attention(*tensors, backend)
    torch.testing.assert_close(found, without if sink < 0 else torch.zeros_like(without), rtol=0, atol=1e-5)
    for gradient in torch.autograd.grad(found.square().sum(), [*tensors, sinks]):
        assert gradient.isfinite().all()


@pytest.mark.slow
def test_the_mask_that_a_gpu_compiles_hides_the_same() -> None:
    for number in range(3):
        documents = torch.arange(512).div(100 + number).long().repeat(4, 1)
        wanted = document_mask(documents, 512, "flex")
        assert isinstance(wanted, BlockMask)
        found = compiled_block_mask()(wanted.mask_mod, 4, None, 512, 512, "cpu")
        assert torch.equal(found.to_dense(), wanted.to_dense())


@needs_gpu
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("length", [13, 128, 131])
def test_flex_equals_the_reference(kv_heads: int, length: int) -> None:
    compare("flex", kv_heads, length, length, masked=True, dtype=torch.bfloat16, head_dim=16)


@torch.no_grad()
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_blocks_of_flex_hide_what_the_reference_hides(sinks: bool) -> None:
    compare("flex", 2, 131, 131, masked=True, dtype=torch.float32, head_dim=16, with_sinks=sinks)


@needs_gpu
@pytest.mark.parametrize("backend", ["flex", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attention_sinks_on_a_gpu_equal_the_reference(
    backend: Backend, dtype: torch.dtype, kv_heads: int
) -> None:
    for length in (13, 131):
        compare(backend, kv_heads, length, length, backend == "flex", dtype, head_dim=16, with_sinks=True)


@needs_gpu
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize(("length", "total"), [(13, 13), (131, 131), (5, 13)])
@pytest.mark.parametrize("masked", [False, True])
def test_flash_attention_equals_the_reference(kv_heads: int, length: int, total: int, masked: bool) -> None:
    flash.activate(torch.device("cuda"), 16)
    compare("flash", kv_heads, length, total, masked, dtype=torch.bfloat16, head_dim=16)


def test_a_document_number_rises_at_each_beginning() -> None:
    assert document_numbers(torch.tensor([[5, 2, 6, 2, 2]]), bot_id=2).tolist() == [[0, 1, 1, 2, 3]]


def heads(head_dim: int, sinks: bool = False) -> ModelConfig:
    return ModelConfig(n_layers=1, d_model=head_dim, n_heads=1, n_kv_heads=1, d_ff=8, attention_sinks=sinks)


def test_the_backend_of_a_cpu_follows_from_precision_and_length() -> None:
    cpu, bf16 = torch.device("cpu"), torch.bfloat16
    assert choose_backend("auto", cpu, bf16, model=heads(64), seq_len=512, masked=False) == "math"
    assert choose_backend("auto", cpu, bf16, model=heads(64), seq_len=513, masked=True) == "sdpa"
    chosen = [
        choose_backend("auto", cpu, torch.float32, model=heads(64), seq_len=length, masked=False)
        for length in (256, 257)
    ]
    assert chosen == ["math", "sdpa"]
    assert choose_backend("sdpa", cpu, bf16, model=heads(64), seq_len=16, masked=False) == "sdpa"


@pytest.mark.parametrize(
    ("installed", "major", "dtype", "head_dim", "masked", "expected"),
    [
        ("", 9, torch.bfloat16, 64, True, "flex"),
        ("", 9, torch.bfloat16, 64, False, "sdpa"),
        ("flash-attn-3", 8, torch.bfloat16, 64, True, "flex"),  # made for other GPUs
        ("flash-attn-3", 9, torch.bfloat16, 64, True, "flash"),
        ("flash-attn-3", 9, torch.bfloat16, 64, False, "flash"),
        ("flash-attn-3", 9, torch.float32, 64, True, "flex"),
        ("flash-attn-3", 9, torch.bfloat16, 36, True, "flex"),
        ("", 9, torch.bfloat16, 16, True, "flex"),
        ("", 9, torch.bfloat16, 14, True, "sdpa"),  # flex has no kernels for these
        ("flash-attn-4", 10, torch.bfloat16, 64, True, "flash"),
        ("flash-attn", 8, torch.bfloat16, 64, True, "flash"),
        ("flash-attn", 8, torch.float16, 64, False, "flash"),
        ("flash-attn", 7, torch.float16, 64, True, "flex"),  # older than its kernels
        ("flash-attn", 9, torch.bfloat16, 64, True, "flex"),  # which is faster on an H100
        ("flash-attn", 9, torch.bfloat16, 64, False, "sdpa"),
        ("flash-attn", 12, torch.bfloat16, 64, True, "flash"),
    ],
)
def test_a_gpu_attends_with_flash_where_a_package_for_it_is_the_fastest(
    monkeypatch: pytest.MonkeyPatch,
    installed: str,
    major: int,
    dtype: torch.dtype,
    head_dim: int,
    masked: bool,
    expected: str,
) -> None:
    monkeypatch.setattr(flash, "_installed", {installed: "3.0.0"}.get)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (major, 0))
    gpu = torch.device("cuda")
    assert choose_backend("auto", gpu, dtype, model=heads(head_dim), seq_len=256, masked=masked) == expected
    assert choose_backend("math", gpu, dtype, model=heads(head_dim), seq_len=256, masked=masked) == "math"
    with_sinks = choose_backend(
        "auto", gpu, dtype, model=heads(head_dim, sinks=True), seq_len=256, masked=masked
    )
    assert with_sinks == ("flex" if masked and head_dim >= 16 else "sdpa")


def test_a_backend_that_cannot_work_here_is_refused_with_the_reason() -> None:
    with pytest.raises(TrainerError, match="no backward pass on a CPU"):
        choose_backend("flex", torch.device("cpu"), torch.float32, model=heads(64), seq_len=64, masked=True)
    with pytest.raises(TrainerError, match=r"heads of at least 16 numbers, and model\.head_dim is 8"):
        choose_backend("flex", torch.device("cuda"), torch.bfloat16, model=heads(8), seq_len=64, masked=True)
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.bfloat16)):
        with pytest.raises(TrainerError, match="it needs a GPU, and bf16 or fp16"):
            choose_backend("flash", torch.device(device), dtype, model=heads(64), seq_len=64, masked=True)


def test_documents_are_kept_apart_on_a_gpu_unless_told_otherwise() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [masks_documents("auto", cpu), masks_documents("auto", gpu)] == [False, True]
    assert [masks_documents(True, cpu), masks_documents(False, gpu)] == [True, False]
