"""Each backend of attention against a plain float64 reference, forward and backward."""

import math

import pytest
import torch

from trainer.attention import Backend, attention, choose, document_numbers


def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, documents: torch.Tensor | None) -> torch.Tensor:
    """Position by position, head by head."""
    result = torch.zeros_like(query)
    length, total, group = query.shape[2], key.shape[2], query.shape[1] // key.shape[1]
    for row in range(query.shape[0]):
        for head in range(query.shape[1]):
            for t in range(length):
                here = total - length + t
                seen = [s for s in range(here + 1) if documents is None or documents[row, s] == documents[row, here]]
                scores = torch.stack([query[row, head, t] @ key[row, head // group, s] for s in seen]) / math.sqrt(query.shape[3])
                result[row, head, t] = (scores.softmax(0)[:, None] * value[row, head // group, seen]).sum(0)
    return result


@pytest.mark.parametrize("backend", ["math", "sdpa"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize(("length", "total"), [(13, 13), (5, 13), (1, 8)])
@pytest.mark.parametrize("masked", [False, True])
def test_a_backend_equals_the_reference(backend: Backend, kv_heads: int, length: int, total: int, masked: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 4, length, 8), (2, kv_heads, total, 8), (2, kv_heads, total, 8))
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    tokens = torch.randint(0, 4, (2, total), generator=generator)
    documents = document_numbers(tokens, bot_id=0) if masked else None
    weights = torch.randn(shapes[0], generator=generator, dtype=torch.float64)

    exact = [tensor.clone().requires_grad_() for tensor in tensors]
    expected = reference(exact[0], exact[1], exact[2], documents)
    (expected * weights).sum().backward()
    fast = [tensor.float().requires_grad_() for tensor in tensors]
    found = attention(fast[0], fast[1], fast[2], backend, documents)
    (found * weights.float()).sum().backward()

    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(fast, exact, strict=True):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-5)


def test_a_document_number_rises_at_each_beginning() -> None:
    assert document_numbers(torch.tensor([[5, 2, 6, 2, 2]]), bot_id=2).tolist() == [[0, 1, 1, 2, 3]]


def test_the_backend_follows_from_device_and_length() -> None:
    assert choose("auto", torch.device("cpu"), 512) == "math"
    assert choose("auto", torch.device("cpu"), 1024) == "sdpa"
    assert choose("auto", torch.device("cuda"), 256) == "sdpa"
    assert choose("sdpa", torch.device("cpu"), 16) == "sdpa"
