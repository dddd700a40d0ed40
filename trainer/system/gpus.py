"""Peak rates, memory and prices of common GPUs."""

from dataclasses import dataclass

PRICES_AS_OF = "2025"


@dataclass(frozen=True)
class Gpu:
    """A GPU that is common. `device` is a part of the name that its driver gives it. `flops` is the
    manufacturer's dense peak per second in bf16 and fp16, summed in fp32; V100 and T4 have no bf16. `memory`
    is in bytes. `price` is in USD per GPU-hour on demand, an assumption of PRICES_AS_OF.
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
    "gh200": _gpu("GH200", 989, 96, 2.00),
    "h100-pcie": _gpu("H100 PCIe", 756, 80, 2.40),
    "h100-nvl": _gpu("H100 NVL", 835, 94, 2.60),
    "h100": _gpu("H100", 989, 80, 3.00),
    "mi300x": _gpu("MI300X", 1307, 192, 2.50),
    "a100-40gb": _gpu("A100-SXM4-40GB", 312, 40, 1.30),
    "a100": _gpu("A100", 312, 80, 1.80),
    "l40s": _gpu("L40S", 362, 48, 1.00),
    "l40": _gpu("L40", 181, 48, 0.90),
    "rtxpro6000": _gpu("RTX PRO 6000", 504, 96, 1.80),
    "rtx6000ada": _gpu("RTX 6000 Ada", 364, 48, 0.80),
    "rtxa6000": _gpu("RTX A6000", 155, 48, 0.50),
    "rtx5090": _gpu("RTX 5090", 210, 32, 0.70),
    "rtx5080": _gpu("RTX 5080", 113, 16, 0.40),
    "rtx4090": _gpu("RTX 4090", 165, 24, 0.40),
    "rtx4080": _gpu("RTX 4080", 97, 16, 0.30),
    "rtx3090": _gpu("RTX 3090", 71, 24, 0.25),
    "rtx3060": _gpu("RTX 3060", 25.6, 12, 0.10),
    "a40": _gpu("A40", 150, 48, 0.40),
    "a10": _gpu("A10", 125, 24, 0.75),
    "l4": _gpu("L4", 121, 24, 0.70),
    "v100": _gpu("V100", 125, 16, 0.60),
    "t4": _gpu("T4", 65, 16, 0.35),
}
# What the name of another GPU adds to that of one in the table.
OTHERS = ("Ti", "SUPER", "D", "Laptop")
