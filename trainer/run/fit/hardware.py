"""The machine's memory, and the rate of its matrix products."""

import os
import re
import time
from functools import lru_cache
from pathlib import Path

import torch

from trainer.model.precision import AUTOCAST, Precision
from trainer.system.gpus import GPUS, OTHERS

# Matrices grow until a product takes this long: bf16 without hardware takes a thousand times as long.
MEASURED_SECONDS, MEASURED_TIMES = 2e-3, 3
CGROUP = Path("/sys/fs/cgroup")


def peak_flops(device: torch.device, precision: Precision) -> float:
    """FLOP/s of matrix products on one device: from the data sheet for bf16 and fp16 on a known GPU, or else
    measured.
    """
    if device.type == "cuda" and precision in AUTOCAST and (name := known_gpu(device)):
        return GPUS[name].flops
    return _measured_flops(device, precision, torch.get_num_threads())


def known_gpu(device: torch.device) -> str | None:
    """The name of this GPU among the GPUS, if it is one of them."""
    driver = torch.cuda.get_device_name(device)
    other = rf"\b(?! ({'|'.join(OTHERS)})\b)"
    return next(
        (name for name, gpu in GPUS.items() if re.search(rf"\b{re.escape(gpu.device)}{other}", driver)), None
    )


@lru_cache
def _measured_flops(device: torch.device, precision: Precision, threads: int) -> float:
    size, seconds = 128, 0.0
    while seconds < MEASURED_SECONDS:
        size *= 2
        # Not constants: a GPU multiplies them faster, because they take less power (H200: 894 TFLOP/s on
        # zeros, 788 on random numbers). With a generator of its own, so that no other random state moves.
        generator = torch.Generator(device).manual_seed(0)
        matrix = torch.randn(size, size, device=device, generator=generator)
        matrix = matrix.to(AUTOCAST.get(precision, torch.float32))
        seconds = min(_seconds_to_square(matrix) for _ in range(MEASURED_TIMES))
    return 2 * size**3 / seconds


def _seconds_to_square(matrix: torch.Tensor) -> float:
    started = time.perf_counter()
    matrix @ matrix
    if matrix.is_cuda:
        torch.cuda.synchronize(matrix.device)
    return time.perf_counter() - started


def peak_memory(device: torch.device) -> int:
    """The most bytes that this process has held: on the GPU, or resident on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Not ru_maxrss, which a process inherits from its parent.
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def free_memory(device: torch.device) -> int:
    """The bytes this process can still allocate: on the GPU, or its share of the host's or container's."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    limit, used, parts = (CGROUP / name for name in ("memory.max", "memory.current", "memory.stat"))
    if limit.exists() and (allowed := limit.read_text().strip()) != "max":
        # The page cache counts as used, but is freed on demand.
        cached = sum(
            int(size)
            for name, size in map(str.split, parts.read_text().splitlines())
            if name in ("active_file", "inactive_file")
        )
        free = min(free, int(allowed) - int(used.read_text()) + cached)
    return free // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
