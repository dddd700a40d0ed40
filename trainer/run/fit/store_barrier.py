"""A barrier that PyTorch's compiler leaves out of some of its kernels for GPUs (pytorch issue 190517).

A reduction in a loop that stores a buffer and then reads it back may read with other threads than it stored
with: without a barrier in between they see what was in memory before. A residual connection with dropout and
the norm behind it become such a kernel. PyTorch 2.11 and 2.13 have no barrier there.
"""

import inspect
from typing import Any

import torch


def wait_for_stores() -> None:
    """Has the compiler put a barrier between a store and the loop that reads it back, unless it does so by
    itself.
    """
    from torch._inductor.codegen.triton import TritonKernel

    load = TritonKernel.load
    if "debug_barrier" in inspect.getsource(load):  # PyTorch's, or what an earlier call has put there
        return

    def load_after_barrier(kernel: Any, name: str, index: Any) -> Any:
        # Stores of a loop that has ended, whose values are no longer in registers.
        if name in kernel.cse.invalidated_stores:
            kernel.body.writeline("tl.debug_barrier()")
        return load(kernel, name, index)

    TritonKernel.load = load_after_barrier  # type: ignore[method-assign, assignment]
    # Kernels on disk that were compiled before have none.
    torch.compiler.config.cache_key_tag += "barrier between store and load"
