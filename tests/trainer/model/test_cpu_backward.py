"""What an uncompiled CPU computes in fewer passes is what PyTorch's own operations give."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from trainer.config import ModelConfig
from trainer.model import cpu_backward
from trainer.model.rms_norm import RMSNorm
from trainer.model.rope import rotary_tables, rotate

# In bf16 PyTorch rounds after each operation, and this trainer less often.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("x_type", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weight_type", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_the_norm_and_its_gradients_are_pytorchs(
    x_type: torch.dtype, weight_type: torch.dtype, autocast: bool
) -> None:
    torch.manual_seed(0)
    norm = RMSNorm(64, 1e-5)
    norm.weight.data = (torch.rand(64) + 0.5).to(weight_type)
    x = torch.randn(3, 5, 64).to(x_type).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        normed = norm(x)
        upstream = torch.randn(normed.shape).to(normed.dtype)
        found = torch.autograd.grad(normed, [x, norm.weight], upstream)
    wide, weight = x.detach().float().requires_grad_(), norm.weight.detach().float().requires_grad_()
    expected = F.rms_norm(wide, (64,), weight, 1e-5)
    gradients = torch.autograd.grad(expected, [wide, weight], upstream.float())

    bf16 = autocast or torch.bfloat16 in (x_type, weight_type)
    assert normed.dtype == (torch.bfloat16 if autocast else torch.promote_types(x_type, weight_type))
    for mine, theirs in zip((normed, *found), (expected, *gradients), strict=True):
        tolerance = TOLERANCES[torch.bfloat16 if bf16 else torch.float32]
        torch.testing.assert_close(mine.float(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_rotation_and_its_gradient_are_those_that_the_compiler_sees(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = ModelConfig(n_layers=1, d_model=64, n_heads=2, n_kv_heads=2, d_ff=64)
    cos, sin = rotary_tables(config, 7)
    x = torch.randn(2, 7, 3, 32).to(dtype).requires_grad_()
    upstream = torch.randn(2, 3, 7, 32).to(dtype)
    turned = rotate(x, cos, sin)
    (found,) = torch.autograd.grad(turned, x, upstream)
    monkeypatch.setattr(cpu_backward, "applies_to", lambda *tensors: False)
    expected = rotate(x, cos, sin)
    (gradient,) = torch.autograd.grad(expected, x, upstream)
    torch.testing.assert_close(turned, expected, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
    torch.testing.assert_close(found, gradient, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
