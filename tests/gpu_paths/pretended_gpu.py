"""A GPU that is not there: tensors of device cuda have shapes and no content, and are compiled by
torch.compile as far as Triton's code. Import this before torch, with the library of pretended_cuda.cpp in
PRETENDED_CUDA. For processes of their own: what it replaces in torch stays replaced.
"""

import ctypes
import importlib.util
import itertools
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_torch = importlib.util.find_spec("torch")
assert _torch is not None and _torch.origin is not None
ctypes.CDLL(str(Path(_torch.origin).parent / "lib/libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(os.environ["PRETENDED_CUDA"], mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402

KB = 1024
# Shared memory that a block of threads may take, by compute capability: A100; L4 and RTX 4090; H100.
SHARED_MEMORY = {80: 163 * KB, 89: 99 * KB, 90: 227 * KB}
# Reads of a tensor's content, by method and place: on a GPU the host waits for each.
synchronizations: Counter[str] = Counter()


def pretend(capability: int = 90) -> FakeTensorMode:
    """From here on there is one GPU of this compute capability. Returns the mode for its tensors."""
    properties = SimpleNamespace(
        name="pretended",
        major=capability // 10,
        minor=capability % 10,
        multi_processor_count=132,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 * KB,
        shared_memory_per_block_optin=SHARED_MEMORY[capability],
        shared_memory_per_multiprocessor=SHARED_MEMORY[capability] + KB,
        total_memory=80 * 10**9,
        L2_cache_size=50 * KB * KB,
        gcnArchName="",
    )
    _replace_queries(properties)
    _replace_reads()
    return FakeTensorMode(allow_non_fake_inputs=True)


def _replace_queries(properties: SimpleNamespace) -> None:
    from torch._dynamo import device_interface

    capability = (properties.major, properties.minor)
    for name, value in {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": properties,
        "get_device_capability": capability,
        "get_device_name": properties.name,
        "synchronize": None,
        "_lazy_init": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "set_device": None,
        "is_initialized": False,
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "get_rng_state": torch.empty(0),
        "set_rng_state": None,
    }.items():
        setattr(torch.cuda, name, _always(value))
    torch.version.cuda = "13.0"
    for name in ("_cuda_getCurrentRawStream", "_cuda_setDevice", "_cuda_isCurrentStreamCapturing"):
        setattr(torch._C, name, _always(0))
    interface = device_interface.CudaInterface
    for name, value in {
        "get_device_properties": properties,
        "get_compute_capability": 10 * properties.major + properties.minor,
        "is_available": True,
        "raise_if_triton_unavailable": None,
        "is_triton_capable": True,
    }.items():
        setattr(interface, name, staticmethod(_always(value)))
    interface.Worker.get_device_properties = staticmethod(_always(properties))
    torch.cuda.amp.common.amp_definitely_not_available = _always(False)


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _replace_reads() -> None:
    """Reading content is counted, and gives another number each time: no compiled code may depend on it."""
    numbers = itertools.count(1)
    results = {
        "item": lambda tensor: float(next(numbers)),
        "tolist": lambda tensor: [float(next(numbers)) for _ in range(tensor.numel())],
        "__bool__": lambda tensor: True,
        "__float__": lambda tensor: float(next(numbers)),
    }
    for name, result in results.items():
        setattr(torch.Tensor, name, _counted(name, getattr(torch.Tensor, name), result))
    # Its own would read element by element.
    FakeTensor.tolist = torch.Tensor.tolist
    torch.nn.Linear.reset_parameters = _always(None)
    torch.nn.Embedding.reset_parameters = _always(None)


def _counted(name: str, read: Any, result: Any) -> Any:
    def method(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return read(tensor, *arguments, **options)
        if tensor.device.type == "cuda":
            synchronizations[name] += 1
        return result(tensor)

    return method
