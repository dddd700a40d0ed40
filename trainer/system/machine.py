"""What of a machine decides the last bits of weights that are trained on a CPU: the number of threads, which
cut sums into parts, and the instructions that kernels choose by.
"""

import os
import platform
from pathlib import Path
from typing import Any

CPU_INFO = Path("/proc/cpuinfo")
# Those that the kernels of PyTorch, oneDNN and MKL are chosen by, on x86 and on Arm.
AVX = ("avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni")
CHOSEN_BY = (*AVX, "amx_tile", "amx_bf16", "asimd", "bf16", "i8mm", "sve")
# Variables by which a person keeps kernels from using some of them.
LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")


def machine(threads: int, device: str) -> dict[str, Any]:
    """As state.json and a lineage record it: `device`, `threads` of each process, `processor` (its name, for
    people), `instructions` and the environment's `limits` of them.
    """
    return {"device": device, "threads": threads, **processor()}


def processor() -> dict[str, Any]:
    """The facts about the processor, which do not depend on the number of threads."""
    facts = _facts()
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    return {
        "processor": facts.get("model name") or platform.machine(),
        "instructions": [name for name in CHOSEN_BY if name in flags],
        "limits": {name: os.environ[name] for name in LIMITS if name in os.environ},
    }


def _facts() -> dict[str, str]:
    """The facts that the system gives about the first core. Empty if it gives none."""
    try:
        text = CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The facts by which weights may differ in their last bits, as parts of a sentence."""
    return [
        f"{name} {_shown(then.get(name))} then, {_shown(now.get(name))} now"
        for name in {**now, **then}
        if name != "processor" and then.get(name) != now.get(name)
    ]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{name}={one}" for name, one in value.items()]
    return " ".join(value) or "none" if isinstance(value, list) else str(value)
