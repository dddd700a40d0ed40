"""The rates behind a plan: measured on the machine at hand with the model's own shapes, or shares of the data
sheet for a GPU elsewhere.
"""

import time
from collections.abc import Callable

import torch
from torch import nn

from trainer.config import ModelConfig, TrainingConfig
from trainer.model.attention import attention, choose
from trainer.model.llama import padded_vocab_size
from trainer.model.precision import AUTOCAST, Precision
from trainer.system.gpus import Gpu
from trainer.tools.planner.roofline import Rates

# An H200, whose data sheet says 989 TFLOP/s and 4.8 TB/s, multiplies 8,192 x 8,192 random numbers at 788, the
# shapes of a 1B at about 670, and copies at 4.0. Under load clocks fall by 10 to 15%.
PRODUCTS_SHARE, MEMORY_SHARE, UNDER_LOAD = 670 / 989, 4.0 / 4.8, 0.87
LINK_SHARE = 0.75  # of the peak, for gathers and reductions among the GPUs of a machine
# Of the rate of products, by head_dim: estimates for flex, forward and backward.
ATTENTION_SHARES, WIDE_HEAD = (0.3, 0.5), 128
HOST_SECONDS = 1e-3  # estimated: 600 launches and a few syncs took 12 blocks and their optimizer 14 ms
MEASURED_ROWS = {"cpu": 2048, "cuda": 16_384}
MEASURED_TIMES = 3
# Read or written: 2 by silu, 3 by the product, 6 by its backward pass, 3 by that of silu.
SWIGLU_TENSORS = 14


def of_data_sheet(gpu: Gpu, model: ModelConfig) -> Rates:
    products = gpu.flops * PRODUCTS_SHARE * UNDER_LOAD
    share = ATTENTION_SHARES[model.head_dim >= WIDE_HEAD]
    return Rates(
        products, share * products, gpu.bandwidth * MEMORY_SHARE, gpu.link * LINK_SHARE, HOST_SECONDS
    )


def measured(
    training: TrainingConfig, vocab_size: int, device: torch.device, precision: Precision, link: float
) -> Rates:
    """Takes a few seconds. No host launches the work of a CPU; the `link` is the data sheet's."""
    dtype, on_gpu = AUTOCAST.get(precision, torch.float32), device.type == "cuda"
    rows = min(MEASURED_ROWS[device.type], training.micro_batch_tokens)
    products = _products(training.model, vocab_size, rows, device, dtype)
    memory = _memory(rows * training.model.d_ff, device)
    if not on_gpu:
        return Rates(products, _attention(training, device, dtype), memory, link)
    share = ATTENTION_SHARES[training.model.head_dim >= WIDE_HEAD]
    return Rates(
        products * UNDER_LOAD, share * products * UNDER_LOAD, memory, link * LINK_SHARE, HOST_SECONDS
    )


def _products(
    model: ModelConfig, vocab_size: int, rows: int, device: torch.device, dtype: torch.dtype
) -> float:
    """Operations a second over all matrix products of the model, each forward and backward."""
    heads, kv_heads = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    shapes = [(model.d_model, heads, 1), (heads, model.d_model, 1), (model.d_model, kv_heads, 2)]
    shapes += [(model.d_model, model.d_ff, 2), (model.d_ff, model.d_model, 1)]
    counted = [(inputs, outputs, count * model.n_layers) for inputs, outputs, count in shapes]
    operations, seconds = 0, 0.0
    for inputs, outputs, count in [*counted, (model.d_model, padded_vocab_size(vocab_size), 1)]:
        x = torch.randn(rows, inputs, device=device).to(dtype).requires_grad_()
        weight = torch.randn(outputs, inputs, device=device).to(dtype).requires_grad_()
        slope = torch.randn(rows, outputs, device=device).to(dtype)

        def both(x: torch.Tensor = x, weight: torch.Tensor = weight, slope: torch.Tensor = slope) -> None:
            torch.autograd.grad(nn.functional.linear(x, weight), (x, weight), slope)

        operations += count * 6 * rows * inputs * outputs
        seconds += count * _fastest(both, device)
    return operations / seconds


def _attention(training: TrainingConfig, device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second, of those that the causal order leaves, forward and backward."""
    model, length = training.model, training.seq_len
    backend = choose(
        training.attention, device, dtype, length, model.head_dim, masked=False, sinks=model.attention_sinks
    )
    sizes = [(1, heads, length, model.head_dim) for heads in (model.n_heads, *2 * [model.n_kv_heads])]
    inputs = [torch.randn(size, device=device).to(dtype).requires_grad_() for size in sizes]
    query, key, value = inputs

    def both() -> None:
        mixed = attention(query, key, value, backend)
        torch.autograd.grad(mixed, inputs, torch.ones_like(mixed))

    return 6 * model.n_heads * model.head_dim * length**2 / _fastest(both, device)


def _memory(numbers: int, device: torch.device) -> float:
    """Bytes a second that the passes of SwiGLU read and write, forward and backward, not compiled. They take
    a CPU longer than copies, because of exp.
    """
    gate, up = (torch.randn(numbers, device=device).bfloat16().requires_grad_() for _ in range(2))

    def both() -> None:
        mixed = nn.functional.silu(gate) * up
        torch.autograd.grad(mixed, (gate, up), mixed)

    return SWIGLU_TENSORS * gate.nbytes / _fastest(both, device)


def _fastest(call: Callable[[], object], device: torch.device) -> float:
    """The seconds of the fastest of several calls, after one that warms up."""
    seconds = []
    for _ in range(1 + MEASURED_TIMES):
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])
