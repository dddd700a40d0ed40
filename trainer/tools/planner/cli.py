"""`python -m trainer plan`: memory, time, cost and expected loss of a run."""

import argparse
import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import yaml
from pydantic import ValidationError

from trainer.config import TrainingConfig, format_validation_error, from_record, override
from trainer.model.precision import resolve_precision
from trainer.run.fit.hardware import free_memory, known_gpu, peak_flops
from trainer.run.fit.memory import Footprint, is_out_of_memory
from trainer.run.fit.micro_batch import fitting
from trainer.system import terminal, yaml_file
from trainer.system.errors import TrainerError, reason
from trainer.system.gpus import GPUS
from trainer.system.paths import at_home
from trainer.tools.planner.plan import Machine, Plan
from trainer.tools.planner.speed import tokens_per_second

CPU = "cpu"
ASSUMED_MFU = 0.4
VOCABULARY = 50_000  # of a recipe that does not say


def main(arguments: list[str]) -> int:
    options = _parser().parse_intermixed_args(arguments)
    if options.mfu and options.mfu > 1:
        raise TrainerError(f"--mfu {options.mfu:g} is above 1: write a share of the peak, such as 0.4")
    recipes = [word for word in options.words if "=" not in word]
    if len(recipes) != 1:
        raise TrainerError(f"give one recipe, not {len(recipes)}: a path, or a name such as gpu")
    values = _read(_path(recipes[0]))
    for word in options.words:
        if "=" in word:
            override(values, word)
    training = _training(values, recipes[0])
    vocab_size = _vocab_size(values)
    machine = _machine(options, training, options.gpus or _processes(values))
    with terminal.doing("measuring what a step takes"):
        plan = _plan(options, training, vocab_size, machine)
    print(json.dumps(plan.figures()) if options.json else plan)
    return 0


def _plan(options: argparse.Namespace, training: TrainingConfig, vocab_size: int, machine: Machine) -> Plan:
    device = torch.device("cpu" if machine.name == CPU else "cuda")
    parallel = training.parallel
    data_size = max(1, machine.count // (parallel.tp * parallel.pp))
    footprint = Footprint.measure(training, vocab_size, data_size, device)
    if training.micro_batch_size == "auto":
        footprint = footprint.with_micro_batch(fitting(footprint, data_size, machine.memory)[0], data_size)
        training = footprint.training
    memory = footprint.memory()
    flops = training.model.flops_per_token(vocab_size, training.seq_len)
    speed = machine.count * machine.flops * (options.mfu or ASSUMED_MFU) / flops
    known = "as --mfu says" if options.mfu else "assumed: give --mfu if you know better"
    if not options.mfu and options.gpu in (None, CPU):
        too_small = TrainerError(
            f"training needs {memory}, and {machine.memory / 1e6:,.0f} MB are free, so that no speed can be "
            "measured here: give --mfu, or another machine with --gpu"
        )
        if memory.lasting > machine.memory:
            raise too_small
        try:
            speed = tokens_per_second(training, vocab_size, device, machine.count)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise too_small from error
        known = "measured now on this machine"
    return Plan(machine, training, vocab_size, speed, known, memory)


def _machine(options: argparse.Namespace, training: TrainingConfig, processes: int) -> Machine:
    """The machine with the GPU that the options name, or the one at hand, which need not be in the table."""
    device = torch.device("cuda" if options.gpu is None and torch.cuda.is_available() else "cpu")
    if options.gpu in GPUS or device.type == "cuda":
        training.parallel.check_processes(processes)
    elif options.gpus not in (None, 1):
        raise TrainerError(f"--gpus {options.gpus} is not for the CPU of this machine")
    if options.gpu in GPUS:
        gpu = GPUS[options.gpu]
        return Machine(options.gpu, processes, gpu.flops, gpu.memory, options.price or gpu.price)
    if training.threads:
        torch.set_num_threads(training.threads)
    memory = free_memory(device)
    flops = peak_flops(device, resolve_precision(training.precision, device))
    if device.type == "cpu":
        return Machine(CPU, 1, flops, memory, options.price or 0.0)
    known = known_gpu(device)
    name = known or torch.cuda.get_device_name(device)
    price = GPUS[known].price if known else 0.0
    return Machine(name, processes, flops, memory, options.price or price)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer plan",
        description="Memory, time, cost and expected loss of a run, before it is started.",
    )
    add = parser.add_argument
    add(
        "words",
        nargs="*",
        metavar="RECIPE | key=value",
        help="a recipe: its path or, if it ships, its name; also a run's directory or config.yaml. Settings "
        "that differ, for example training.micro_batch_size=4 or training.model=7b",
    )
    add(
        "--gpu",
        type=lambda text: text.lower().replace(" ", ""),  # `RTX 4090`, as its maker writes it
        choices=[*GPUS, CPU],
        help="the GPU to plan for; default: that of this machine or, without one, its CPU, whose speed is "
        "measured",
    )
    add(
        "--gpus",
        metavar="N",
        type=_positive(int),
        help="how many GPUs; default: the processes that the recipe starts",
    )
    add(
        "--mfu",
        metavar="SHARE",
        type=_positive(float),
        help=f"share of the peak that training reaches; default: measured on this machine, {ASSUMED_MFU} "
        "for another",
    )
    add(
        "--price",
        metavar="USD",
        type=_positive(float),
        help="USD per GPU-hour; default: an assumption for the GPU",
    )
    add("--json", action="store_true", help="print the figures of the plan as JSON")
    return parser


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a number above zero")
        return value

    return parse


def _path(named: str) -> Path:
    """The file of a recipe or a run. Raises TrainerError when there is none."""
    package = find_spec("pipeline")  # not imported: the trainer works without it
    folder = Path(package.origin).parent / "recipes" if package and package.origin else Path()
    shipped, path = {recipe.stem: recipe for recipe in sorted(folder.glob("*.yaml"))}, Path(named)
    if named in shipped:
        return shipped[named]
    if not path.exists() and path.suffix not in (".yaml", ".yml"):
        names = f", or the name of one that ships: {', '.join(shipped)}" if shipped else ""
        raise TrainerError(f"{named}: no such recipe. Give the path of a YAML file{names}")
    return path / "config.yaml" if path.is_dir() else path


def _read(path: Path) -> dict[str, Any]:
    """The recipe or configuration. Raises TrainerError when it cannot be read."""
    try:
        values = yaml_file.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise TrainerError(f"{path}: cannot be read: {reason(error)}") from error
    if not isinstance(values, dict) or "training" not in values:
        raise TrainerError(f"{path}: has no `training` section")
    return values


def _processes(values: dict[str, Any]) -> int:
    """The number of processes that a recipe starts. Raises TrainerError for what is no number."""
    launch = values.get("launch") or {}
    number = launch.get("nproc_per_node", 1) if isinstance(launch, dict) else launch
    if not isinstance(number, int) or number < 1:
        raise TrainerError(f"launch.nproc_per_node is {number!r}: set it to a number of processes")
    return number


def _vocab_size(values: dict[str, Any]) -> int:
    """The size of the tokenizer's vocabulary, as far as it is known. Raises TrainerError for what is no
    size.
    """
    place = "data" if values.get("data") else "tokenizer"
    section = values.get(place) or {}
    if isinstance(section, dict) and at_home(str(section.get("shards"))).is_file():
        section = from_record(section)
    size = section.get("vocab_size") if isinstance(section, dict) else section
    if size is None:
        print(  # beside the plan, which a program may read
            f"The size of the vocabulary is not known; the plan assumes {VOCABULARY:,}. Add "
            f"{place}.vocab_size=N.",
            file=sys.stderr,
        )
        return VOCABULARY
    if not isinstance(size, int) or size < 1:
        raise TrainerError(f"the size of the vocabulary is {size!r}: set {place}.vocab_size=N")
    return size


def _training(values: dict[str, Any], named: str) -> TrainingConfig:
    try:
        return TrainingConfig.model_validate(values["training"])
    except ValidationError as error:
        raise TrainerError(f"{named}: training: {format_validation_error(error)}") from error
