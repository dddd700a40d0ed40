"""FlashAttention's kernels for documents of variable length: those of a package, or PyTorch's own."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, NamedTuple

import torch
from packaging.version import Version
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

from trainer.model.attention.documents import DocumentStarts
from trainer.system.errors import TrainerError, first_line

WIDEST_HEAD, HEAD_MULTIPLE = 256, 8
OLDEST_GPU = 8  # major number of the compute capability: A100
OLDEST_FLASH_ATTN = "2.7"  # its kernels are operators that torch.compile knows
# From 2.12 on, varlen_attn has to be told that query heads share key heads. That of 2.11 takes both as they
# come.
TOLD_OF_GROUPS = Version(torch.__version__) >= Version("2.12")


class Package(NamedTuple):
    """A package of kernels. `implementation` is PyTorch's name for kernels that it takes in place of its own,
    None for kernels that are called in the package itself. The kernels run on GPUs whose compute capability
    has one of the major numbers `runs_on`, and `auto` takes them on those of `fastest_on`.
    """

    name: str
    implementation: Literal["FA3", "FA4"] | None
    runs_on: tuple[int, ...]
    fastest_on: tuple[int, ...]


# The first that runs on the GPU is taken. Flash-attn 2 multiplies with the instructions of an A100. A GPU
# that has no newer ones (8: A100, L4, RTX 4090; 12: RTX 5090) has no faster kernels: flex reaches 90% of its
# speed forward and 85% backward (pytorch.org/blog/flexattention, on an A100), and cuDNN's kernels 82 to 100%
# (A100, A10G, L40S, RTX PRO 6000: huggingface/transformers, pull request 48163). An H100 has newer ones, and
# Triton's kernels, of which flex is made, are faster there, cuDNN's faster still: forward, heads of 128,
# TFLOP/s: flash-attn 2 370, Triton 390, cuDNN 600, flash-attn 3 640 (Shah et al. 2024, FlashAttention-3,
# arXiv 2407.08608, figure 5). Flash-attn 3 was written for the H100, where flash-attn 4 is no faster.
PACKAGES = (
    Package("flash-attn-3", "FA3", (9,), (9,)),
    Package("flash-attn-4", "FA4", (9, 10), (9, 10)),
    Package("flash-attn", None, (8, 9, 10, 11, 12), (8, 12)),
)

# flash_attn_varlen_func of flash-attn 2, once `activate` has taken it.
_of_package: Callable[..., torch.Tensor] | None = None


def activate(device: torch.device, head_dim: int) -> str:
    """Makes `attend` use the best kernels for this GPU: those of the first of `PACKAGES` that is installed
    and runs on it, else FlashAttention 2 as PyTorch has it built in. Returns the name and version of where
    they come from.

    Raises TrainerError if none can serve this GPU or heads of this size, or if the package is damaged or too
    old.
    """
    take_pytorchs_own()
    major, minor = torch.cuda.get_device_capability(device)
    if major < OLDEST_GPU:
        raise TrainerError(
            f"training.attention flash needs compute capability {OLDEST_GPU}.0, and {device} has "
            f"{major}.{minor}; set attention: auto"
        )
    if not _fits(head_dim):
        raise TrainerError(
            f"training.attention flash needs heads of at most {WIDEST_HEAD} numbers, a multiple of "
            f"{HEAD_MULTIPLE}, and model.head_dim is {head_dim}; set attention: auto"
        )
    for package in PACKAGES:
        if major in package.runs_on and (found := _installed(package.name)):
            _load(package, found)
            return f"{package.name} {found}"
    return f"torch {torch.__version__}"


def take_pytorchs_own() -> None:
    """Makes `attend` use the kernels of FlashAttention 2 that PyTorch has built in."""
    global _of_package
    _of_package = None
    restore_flash_attention_impl(_raise_warn=False)


def is_fastest_on(device: torch.device, head_dim: int) -> bool:
    """Whether a package is installed whose kernels are the fastest for this GPU and heads of this size.
    PyTorch's own kernels do not count.
    """
    majors = {major for package in PACKAGES if _installed(package.name) for major in package.fastest_on}
    # Without a package, the GPU is not asked.
    return bool(majors) and _fits(head_dim) and torch.cuda.get_device_capability(device)[0] in majors


def _fits(head_dim: int) -> bool:
    return head_dim <= WIDEST_HEAD and head_dim % HEAD_MULTIPLE == 0


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _load(package: Package, found: str) -> None:
    global _of_package
    try:
        if package.implementation:
            activate_flash_attention_impl(package.implementation)
            return
        from flash_attn import flash_attn_varlen_func

        _of_package = flash_attn_varlen_func
    except (ImportError, RuntimeError, OSError) as error:
        raise TrainerError(
            f"the package {package.name} cannot be loaded ({first_line(error)}): build it for this PyTorch, "
            "or uninstall it"
        ) from error
    if Version(found) < Version(OLDEST_FLASH_ATTN):
        raise TrainerError(
            f"the package {package.name} {found} is too old to be compiled with a block: install "
            f"{OLDEST_FLASH_ATTN} or newer, or uninstall it"
        )


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, documents: DocumentStarts | None
) -> torch.Tensor:
    """Causal attention within `documents`, or within rows: query [batch, heads, length, head_dim], key and
    value [batch, kv_heads, length, head_dim], in bf16 or fp16 on a GPU. Returns the shape of the query.

    The kernels are told that a document may be as long as a row, whatever the boundaries are, so that one
    compiled graph serves all of them.
    """
    batch, heads, length, head_dim = query.shape
    starts = (
        torch.arange(0, batch * length + 1, length, dtype=torch.int32, device=query.device)
        if documents is None
        else documents.starts
    )
    query, key, value = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value))
    if _of_package is not None:
        # A copy, because torch.compile refuses an autograd function that gets one tensor twice.
        mixed = _of_package(query, key, value, starts, starts.clone(), length, length, causal=True)
    else:
        mixed = _of_torch(query, key, value, starts, length)
    return mixed.view(batch, length, heads, head_dim).transpose(1, 2)


def _of_torch(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts: torch.Tensor, longest: int
) -> torch.Tensor:
    # Imported here because it loads the compiler, which takes a second.
    from torch.nn.attention.varlen import varlen_attn

    grouped: dict[str, Any] = {"enable_gqa": query.shape[1] != key.shape[1]} if TOLD_OF_GROUPS else {}
    mixed = varlen_attn(query, key, value, starts, starts, longest, longest, window_size=(-1, 0), **grouped)
    assert isinstance(mixed, torch.Tensor)  # no sums of the softmax were asked for
    return mixed
