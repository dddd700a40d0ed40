"""Peak rates, memory and prices of common GPUs."""

from dataclasses import dataclass

PRICES_AS_OF = "2025"


@dataclass(frozen=True)
class Gpu:
    """A GPU that is common. `device` is a part of the name that its driver gives it. `flops` is the
    manufacturer's dense peak per second in bf16 and fp16, and `memory` is in bytes. `price` is in USD per
    GPU-hour on demand, an assumption of PRICES_AS_OF.
    """

    device: str
    flops: float
    memory: int
    price: float


def _gpu(device: str, teraflops: float, gigabytes: int, price: float) -> Gpu:
    return Gpu(device, teraflops * 1e12, gigabytes * 10**9, price)


# The first entry whose `device` is in the driver's name counts, so of similar names the longer comes first.
GPUS = {
    "b200": _gpu("B200", 2250, 180, 5.00),
    "h200": _gpu("H200", 989, 141, 3.50),
    "h100-pcie": _gpu("H100 PCIe", 756, 80, 2.40),
    "h100-nvl": _gpu("H100 NVL", 835, 94, 2.60),
    "h100": _gpu("H100", 989, 80, 3.00),
    "mi300x": _gpu("MI300X", 1307, 192, 2.50),
    "a100-40gb": _gpu("A100-SXM4-40GB", 312, 40, 1.30),
    "a100": _gpu("A100", 312, 80, 1.80),
    "l40s": _gpu("L40S", 362, 48, 1.00),
    "l40": _gpu("L40", 181, 48, 0.90),
    "rtx4090": _gpu("RTX 4090", 165, 24, 0.40),
    "a10": _gpu("A10", 125, 24, 0.75),
    "l4": _gpu("L4", 121, 24, 0.70),
}
