"""How a step is computed: settings that decide its speed, memory and rounding."""

from typing import Literal

from trainer.config.base import Config


class Numerics(Config):
    """Numbers, kernels and what is kept for the backward pass."""

    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16", "fp8"] = "auto"
    """Number format of matrix products; weights stay fp32. `auto`: bf16 if the hardware supports it natively,
    else fp32. `fp16`: a step whose gradients overflow is skipped; its tokens count as seen and the schedule
    waits. `fp8`: bf16, with the products inside blocks in 8 bits; needs torchao and a GPU such as L4 or H100.
    """
    compile: bool | Literal["auto"] = "auto"
    """Whether blocks are compiled with torch.compile: faster steps after a slow start. `auto`: on a GPU,
    which then also repeats micro-batches as CUDA graphs where its memory allows. On a CPU, set `true` for
    long runs; it needs a C++ compiler.
    """
    attention: Literal["auto", "math", "sdpa", "flex", "flash"] = "auto"
    """Implementation of attention. `auto`: on a CPU chosen by precision and `seq_len`; on a GPU `flash` if a
    package whose kernels are the fastest there is installed, else `flex` or `sdpa`. `math`: plain matrix
    products. `sdpa`: PyTorch's scaled_dot_product_attention. `flex`: FlexAttention, on a GPU. `flash`:
    FlashAttention's kernels for documents of variable length, on a GPU from A100 on, in bf16 or fp16;
    docs/trainer.md says which packages make them faster.
    """
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    """What a block's forward pass keeps for its backward pass: everything (`none`), matrix products
    (`selective`) or only its input (`full`). Less memory, more computing.
    """
