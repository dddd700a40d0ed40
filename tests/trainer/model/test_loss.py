"""The loss is the sum of cross-entropies, whatever the chunking, padding and ignored positions."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from trainer.model import loss
from trainer.model.loss import IGNORED, equal_rows, summed_cross_entropy


def predictions(scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, a head of 64 rows of which 50 are tokens, and targets, three of them ignored."""
    generator = torch.Generator().manual_seed(0)
    hidden = (scale * torch.randn(20, 8, generator=generator)).requires_grad_()
    head = torch.randn(64, 8, generator=generator).requires_grad_()
    targets = torch.randint(0, 50, (20,), generator=generator)
    targets[[3, 4, 19]] = IGNORED
    return hidden, head, targets


@pytest.mark.parametrize("z_loss", [0.0, 0.01])
@pytest.mark.parametrize("chunk_rows, cached_rows", [(1, 1), (3, 2), (100, 7), (100, 100)])
def test_value_and_gradients_equal_those_of_full_logits(
    monkeypatch: pytest.MonkeyPatch, chunk_rows: int, cached_rows: int, z_loss: float
) -> None:
    monkeypatch.setattr(loss, "CHUNK_LOGITS", {"cpu": chunk_rows * 64})
    monkeypatch.setattr(loss, "CACHED_LOGITS", cached_rows * 64 // torch.get_num_threads())
    monkeypatch.setattr(loss, "MIN_CHUNK_ROWS", 1)
    hidden, head, targets = predictions()
    ours = summed_cross_entropy(hidden, head, targets, vocab_size=50, z_loss=z_loss)
    found = torch.autograd.grad(ours / 17, [hidden, head])
    logits = (hidden @ head.T)[:, :50]
    full = F.cross_entropy(logits, targets, reduction="sum")
    penalty = z_loss * logits[targets != IGNORED].logsumexp(dim=-1).square().sum()
    expected = torch.autograd.grad((full + penalty) / 17, [hidden, head])

    torch.testing.assert_close(ours, full)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    assert not found[1][50:].any()


@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_what_is_compiled_for_a_gpu_has_the_same_value_and_gradients(
    z_loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "COMPILED_CHUNK_LOGITS", 6 * 64)
    monkeypatch.setattr(loss, "MIN_CHUNK_ROWS", 1)
    hidden, head, targets = predictions(scale=3)
    found = []
    with torch.compiler.set_stance("force_eager"):
        for compiled in (False, True):
            total = summed_cross_entropy(hidden, head, targets, 50, z_loss, compiled=compiled)
            found.append([total, *torch.autograd.grad(total / 17, [hidden, head])])
            with torch.no_grad():
                again = summed_cross_entropy(hidden, head, targets, 50, z_loss, compiled=compiled)
            torch.testing.assert_close(again, total)
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-5, atol=1e-6)
    assert not found[1][2][50:].any()


@pytest.mark.parametrize(
    ("rows", "most", "expected"), [(16_384, 5336, 4096), (20, 6, 5), (7, 3, 3), (11, 4, 4)]
)
def test_chunks_for_the_compiler_are_of_one_size_where_that_takes_few_more(
    rows: int, most: int, expected: int
) -> None:
    assert equal_rows(rows, most) == expected


def test_a_hopeless_prediction_has_a_finite_loss() -> None:
    hidden, head = torch.tensor([[1.0]]), torch.tensor([[500.0], [-500.0]])
    assert summed_cross_entropy(hidden, head, torch.tensor([1]), vocab_size=2).item() == pytest.approx(1000.0)


def test_nothing_to_predict_is_a_loss_of_zero_not_nan() -> None:
    hidden = torch.ones(3, 4, requires_grad=True)
    total = summed_cross_entropy(hidden, torch.ones(64, 4), torch.full((3,), IGNORED), vocab_size=60)
    total.backward()
    assert total.item() == 0.0
    assert hidden.grad is not None and not hidden.grad.any()


def test_bf16_matrix_products_keep_the_loss_in_fp32() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, head = torch.randn(50, 16, generator=generator), torch.randn(64, 16, generator=generator)
    targets = torch.randint(0, 64, (50,), generator=generator)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = summed_cross_entropy(hidden, head, targets, vocab_size=64)
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(
        summed_cross_entropy(hidden, head, targets, vocab_size=64).item(), rel=2e-3
    )
