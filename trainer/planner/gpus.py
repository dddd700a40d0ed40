"""What the GPUs of the field can do and cost."""

from dataclasses import dataclass

PRICES_AS_OF = "2025"


@dataclass(frozen=True)
class Gpu:
    """`flops`: the maker's dense bf16 peak a second. `memory` in bytes. `price`: an assumed USD per GPU-hour, on demand, at PRICES_AS_OF."""

    flops: float
    memory: int
    price: float


def _gpu(teraflops: float, gigabytes: int, price: float) -> Gpu:
    return Gpu(teraflops * 1e12, gigabytes * 10**9, price)


GPUS = {
    "b200": _gpu(2250, 180, 5.00),
    "h200": _gpu(989, 141, 3.50),
    "h100": _gpu(989, 80, 3.00),
    "h100-pcie": _gpu(756, 80, 2.40),
    "mi300x": _gpu(1307, 192, 2.50),
    "a100": _gpu(312, 80, 1.80),
    "a100-40gb": _gpu(312, 40, 1.30),
    "l40s": _gpu(362, 48, 1.00),
    "rtx4090": _gpu(165, 24, 0.40),
    "a10": _gpu(125, 24, 0.75),
    "l4": _gpu(121, 24, 0.70),
}
