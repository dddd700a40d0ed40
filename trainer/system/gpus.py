"""Peak rates, memory, links and prices of common GPUs."""

from dataclasses import dataclass

PRICES_AS_OF = "2025"


@dataclass(frozen=True)
class Gpu:
    """`device`: a part of the driver's name of the GPU. `flops`: the manufacturer's dense peak per second in
    bf16 and fp16. `memory`: bytes. `price`: USD per GPU-hour on demand, an assumption of PRICES_AS_OF.
    `bandwidth` of its memory and `link` to the other GPUs of a machine, in one direction: bytes per second by
    the data sheet, the link that of NVLink or Infinity Fabric where it has one, else of PCIe.
    """

    device: str
    flops: float
    memory: int
    price: float
    bandwidth: float
    link: float


def _gpu(
    device: str, teraflops: float, gigabytes: int, price: float, terabytes_per_s: float, link_gigabytes: float
) -> Gpu:
    return Gpu(
        device,
        teraflops * 1e12,
        gigabytes * 10**9,
        price,
        bandwidth=terabytes_per_s * 1e12,
        link=link_gigabytes * 1e9,
    )


# The first entry whose `device` is in the driver's name counts, so of similar names the longer comes first.
GPUS = {
    "b200": _gpu("B200", 2250, 180, 5.00, 8.0, 900),
    "h200": _gpu("H200", 989, 141, 3.50, 4.8, 450),
    "h100-pcie": _gpu("H100 PCIe", 756, 80, 2.40, 2.0, 300),
    "h100-nvl": _gpu("H100 NVL", 835, 94, 2.60, 3.9, 300),
    "h100": _gpu("H100", 989, 80, 3.00, 3.35, 450),
    "mi300x": _gpu("MI300X", 1307, 192, 2.50, 5.3, 448),
    "a100-40gb": _gpu("A100-SXM4-40GB", 312, 40, 1.30, 1.555, 300),
    "a100": _gpu("A100", 312, 80, 1.80, 2.039, 300),
    "l40s": _gpu("L40S", 362, 48, 1.00, 0.864, 32),
    "l40": _gpu("L40", 181, 48, 0.90, 0.864, 32),
    "rtx4090": _gpu("RTX 4090", 165, 24, 0.40, 1.008, 32),
    "a10": _gpu("A10", 125, 24, 0.75, 0.6, 32),
    "l4": _gpu("L4", 121, 24, 0.70, 0.3, 32),
}
