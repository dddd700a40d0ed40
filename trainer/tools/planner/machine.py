"""The machine of a plan: GPUs of the table, those at hand, or the CPU at hand."""

import torch

from trainer.config import TrainingConfig
from trainer.model.precision import resolve
from trainer.run.fit.hardware import free_memory, known_gpu, peak_flops
from trainer.system.errors import TrainerError
from trainer.system.gpus import GPUS, Gpu
from trainer.tools.planner import rates
from trainer.tools.planner.plan import Machine
from trainer.tools.planner.roofline import Rates

CPU = "cpu"
GPUS_OF_A_NODE = 8
USUAL_MFU = 0.4  # of a model whose size is not known yet


def at_hand() -> str:
    """The GPU of this machine by its name in the table, or CPU. Raises TrainerError for another GPU."""
    if not torch.cuda.is_available():
        return CPU
    name = known_gpu(torch.device("cuda"))
    if name is None:
        raise TrainerError(
            f"{torch.cuda.get_device_name()} is not in the table of GPUs: name a similar one with --gpu"
        )
    return name


def machine(
    named: str | None,
    count: int | None,
    mfu: float | None,
    price: float | None,
    training: TrainingConfig | None,
) -> tuple[str, Machine]:
    """The name of the GPU, or CPU, and the machine. What is None is that of the machine at hand or, of a
    named GPU, usual. `training` decides the precision and the threads of a CPU. Without `mfu` that of the
    machine is a first guess.
    """
    name = named or at_hand()
    if name == CPU:
        if count not in (None, 1):
            raise TrainerError(f"--gpus {count} is not for --gpu cpu, which is the CPU of this machine")
        return name, Machine(_cpu(training), 1, mfu or USUAL_MFU, price or 0.0)
    found = torch.cuda.device_count() if named is None else GPUS_OF_A_NODE
    return name, Machine(GPUS[name], count or found, mfu or USUAL_MFU, price or GPUS[name].price)


def _cpu(training: TrainingConfig | None) -> Gpu:
    device = torch.device("cpu")
    if training is not None and training.threads:
        torch.set_num_threads(training.threads)
    precision = resolve(training.precision if training else "auto", device)
    memory = free_memory(device)
    return Gpu(CPU, peak_flops(device, precision), memory, price=0.0, bandwidth=0.0, link=0.0)


def rates_of(named: str | None, name: str, training: TrainingConfig, vocab_size: int) -> Rates:
    """Measured, unless a GPU is `named` that need not be in this machine."""
    if name != CPU and named is not None:
        return rates.of_data_sheet(GPUS[name], training.model)
    device = torch.device("cpu" if name == CPU else "cuda")
    link = 1.0 if name == CPU else GPUS[name].link
    return rates.measured(training, vocab_size, device, resolve(training.precision, device), link)
