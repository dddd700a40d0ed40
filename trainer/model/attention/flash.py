"""FlashAttention's kernels for documents of variable length: PyTorch's own, or those of a newer package."""

from importlib.metadata import PackageNotFoundError, version

import torch
from torch.nn.attention import activate_flash_attention_impl

from trainer.model.attention.documents import DocumentStarts
from trainer.system.errors import TrainerError, first_line

WIDEST_HEAD, HEAD_MULTIPLE = 256, 8
OLDEST_GPU = 8  # major number of the compute capability: A100
# Packages whose kernels PyTorch takes in place of its own, by its name for them, and the GPUs that they are
# for. Newest first, but FlashAttention 3 was written for Hopper.
PACKAGES = (("flash-attn-3", "FA3", (9,)), ("flash-attn-4", "FA4", (9, 10)))


def activate(device: torch.device, head_dim: int) -> str:
    """Makes `attend` use the best kernels for this GPU: those of flash-attn-3 or -4, else FlashAttention 2,
    which PyTorch has built in. Returns the name and version of where they come from.

    Raises TrainerError if none can serve this GPU or heads of this size, or if the package is damaged.
    """
    major, minor = torch.cuda.get_device_capability(device)
    if major < OLDEST_GPU:
        raise TrainerError(
            f"training.attention flash needs compute capability {OLDEST_GPU}.0, and {device} has "
            f"{major}.{minor}; set attention: auto"
        )
    if head_dim > WIDEST_HEAD or head_dim % HEAD_MULTIPLE:
        raise TrainerError(
            f"training.attention flash needs heads of at most {WIDEST_HEAD} numbers, a multiple of "
            f"{HEAD_MULTIPLE}, and model.head_dim is {head_dim}; set attention: auto"
        )
    for package, name, majors in PACKAGES:
        if major in majors and (found := _installed(package)):
            try:
                activate_flash_attention_impl(name)
            except (ImportError, RuntimeError, OSError) as error:
                raise TrainerError(
                    f"the package {package} cannot be loaded ({first_line(error)}): build it for this "
                    "PyTorch, or uninstall it"
                ) from error
            return f"{package} {found}"
    return f"torch {torch.__version__}"


def is_installed_for(device: torch.device, head_dim: int) -> bool:
    """Whether a package with kernels for this GPU and heads of this size is installed. PyTorch's own kernels
    do not count.
    """
    made_for = [majors for package, _, majors in PACKAGES if _installed(package)]
    if not made_for or head_dim > WIDEST_HEAD or head_dim % HEAD_MULTIPLE:
        return False
    return any(torch.cuda.get_device_capability(device)[0] in majors for majors in made_for)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
    mixed = _by_sequences(query, key, value, starts, length)
    return mixed.view(batch, length, heads, head_dim).transpose(1, 2)


def _by_sequences(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts: torch.Tensor, longest: int
) -> torch.Tensor:
    # Imported here because it loads the compiler, which takes a second.
    from torch.nn.attention.varlen import varlen_attn

    grouped, causal = query.shape[1] != key.shape[1], (-1, 0)
    mixed = varlen_attn(
        query, key, value, starts, starts, longest, longest, window_size=causal, enable_gqa=grouped
    )
    assert isinstance(mixed, torch.Tensor)  # no sums of the softmax were asked for
    return mixed
