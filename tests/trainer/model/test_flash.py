"""FlashAttention's kernels on documents of any length: what they are given, and whose they are."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import current_flash_attention_impl, restore_flash_attention_impl

from tests import pretended_package
from trainer.model.attention import attention, document_mask, document_numbers, flash
from trainer.model.attention.documents import DocumentStarts, boundaries
from trainer.system.errors import TrainerError

BOT = 1
GPU = torch.device("cuda")
# Rows of a micro-batch: 1 is where a document begins.
ROWS = st.integers(1, 9).flatmap(
    lambda length: st.lists(
        st.lists(st.integers(0, 1), min_size=length, max_size=length), min_size=1, max_size=4
    )
)


def listed(rows: list[list[int]], spare: int) -> list[int]:
    """The boundaries, document by document, and `spare` empty documents behind them."""
    length = len(rows[0])
    begins = [
        row * length + place
        for row, tokens in enumerate(rows)
        for place, token in enumerate(tokens)
        if place == 0 or token == BOT
    ]
    return [*begins, *[len(rows) * length] * (spare + 1)]


@given(rows=ROWS, more=st.integers(0, 3))
def test_boundaries_are_those_of_the_documents_and_of_a_fixed_size(rows: list[list[int]], more: int) -> None:
    documents = document_numbers(torch.tensor(rows), BOT)
    most = more + max(sum(place == 0 or token == BOT for place, token in enumerate(row)) for row in rows)
    found = boundaries(documents, most).starts
    assert found.dtype == torch.int32 and len(found) == len(rows) * most + 1
    assert found.tolist() == listed(rows, len(found) - len(listed(rows, 0)))


def test_more_documents_than_the_index_says_are_not_left_out_in_silence() -> None:
    with pytest.raises(RuntimeError, match="more documents than its corpus' index says"):
        boundaries(document_numbers(torch.tensor([[1, 1, 1, 1]]), BOT), 3)


def kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts: torch.Tensor, longest: int
) -> torch.Tensor:
    """The kernels on a CPU: a softmax for each of the sequences."""
    mixed = torch.full_like(query, torch.nan)  # as the kernels leave what no sequence covers
    key, value = (tensor.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for tensor in (key, value))
    parts = []
    for first, end in itertools.pairwise(starts.tolist()):
        assert end - first <= longest
        one = (tensor[first:end].transpose(0, 1) for tensor in (query, key, value))
        parts.append(torch.nn.functional.scaled_dot_product_attention(*one, is_causal=True).transpose(0, 1))
    return mixed.index_copy(0, torch.arange(len(query)), torch.cat(parts))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_the_kernels_are_given_what_products_compute(
    kv_heads: int, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "_of_torch", kernel)
    generator = torch.Generator().manual_seed(1)
    query, key, value, gradient = (
        torch.randn(3, heads, 33, 8, generator=generator, requires_grad=True)
        for heads in (4, kv_heads, kv_heads, 4)
    )
    documents = document_numbers(torch.randint(0, 5, (3, 33), generator=generator), BOT) if masked else None
    mask = document_mask(documents, 33, "flash", 20)
    assert mask is None or isinstance(mask, DocumentStarts)
    found = flash.attend(query, key, value, mask)
    expected = attention(query, key, value, "math", mask=document_mask(documents, 33, "math"))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    ours, theirs = (torch.autograd.grad(mixed, (query, key, value), gradient) for mixed in (found, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts a package on the path: its name, its module, the module's code and the version."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(flash, "_of_package", None)
    modules: list[str] = []

    def put(package: str, module: str, code: str, version: str = "2.8.0") -> None:
        pretended_package.put(tmp_path, package, module, code, version)
        modules.append(module)

    yield put
    restore_flash_attention_impl(_raise_warn=False)
    for module in modules:
        sys.modules.pop(module, None)


def on(monkeypatch: pytest.MonkeyPatch, *capability: int) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)


FLASH_ATTN_2 = pretended_package.FLASH_ATTN_2.read_text()
KERNELS_OF_3 = """
import torch
library = torch.library.Library("flash_attn_3", "DEF")
library.define("fwd(Tensor q) -> Tensor")
library.define("bwd(Tensor q) -> Tensor")
"""


def test_the_newest_package_for_the_gpu_gives_the_kernels(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, 9, 0)
    assert flash.activate(GPU, 64) == f"torch {torch.__version__}"
    install("flash-attn", "flash_attn", FLASH_ATTN_2)
    assert flash.activate(GPU, 64) == "flash-attn 2.8.0"
    install("flash-attn-3", "flash_attn_interface", KERNELS_OF_3)
    assert flash.activate(GPU, 64) == "flash-attn-3 2.8.0"
    assert current_flash_attention_impl() == "FA3"
    on(monkeypatch, 8, 9)  # flash-attn-3 is for Hopper alone
    assert flash.activate(GPU, 64) == "flash-attn 2.8.0"


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_flash_attn_2_gives_the_results_and_gradients_of_products_compiled_or_not(
    kv_heads: int, masked: bool, compiled: bool, install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("flash-attn", "flash_attn", FLASH_ATTN_2)
    on(monkeypatch, 8, 0)
    assert flash.activate(GPU, 16) == "flash-attn 2.8.0"
    generator = torch.Generator().manual_seed(1)
    query, key, value, gradient = (
        torch.randn(3, heads, 33, 16, generator=generator).bfloat16().requires_grad_()
        for heads in (4, kv_heads, kv_heads, 4)
    )
    documents = document_numbers(torch.randint(0, 5, (3, 33), generator=generator), BOT) if masked else None
    attend = torch.compile(flash.attend, fullgraph=True, backend="aot_eager") if compiled else flash.attend
    mask = document_mask(documents, 33, "flash", 20)
    assert mask is None or isinstance(mask, DocumentStarts)
    found = attend(query, key, value, mask)
    wide = [one.detach().float().requires_grad_() for one in (query, key, value)]
    expected = attention(wide[0], wide[1], wide[2], "math", mask=document_mask(documents, 33, "math"))
    torch.testing.assert_close(found.float(), expected, rtol=1e-2, atol=1e-2)
    ours = torch.autograd.grad(found, (query, key, value), gradient)
    theirs = torch.autograd.grad(expected, wide, gradient.float())
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.float(), other, rtol=2e-2, atol=4e-2)


def test_flash_says_why_it_cannot_run(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, 7, 5)
    with pytest.raises(TrainerError, match=r"needs compute capability 8\.0, and cuda has 7\.5"):
        flash.activate(GPU, 64)
    on(monkeypatch, 9, 0)
    for head_dim in (260, 36):
        with pytest.raises(TrainerError, match=f"a multiple of 8, and model.head_dim is {head_dim}"):
            flash.activate(GPU, head_dim)


@pytest.mark.parametrize(
    ("package", "module"), [("flash-attn-3", "flash_attn_interface"), ("flash-attn", "flash_attn")]
)
def test_a_package_built_for_another_pytorch_is_named(
    package: str, module: str, install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, 9, 0)
    install(package, module, "raise ImportError('undefined symbol: _ZN3c10')")
    with pytest.raises(TrainerError, match=rf"{package} cannot be loaded \(undefined symbol.*uninstall it"):
        flash.activate(GPU, 64)


def test_a_flash_attn_that_no_block_can_be_compiled_with_is_refused(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, 8, 0)
    install("flash-attn", "flash_attn", FLASH_ATTN_2, version="2.6.3")
    with pytest.raises(TrainerError, match=r"flash-attn 2\.6\.3 is too old .* install 2\.7 or newer"):
        flash.activate(GPU, 64)
