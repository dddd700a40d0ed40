"""`python -m trainer plan`: memory, time and cost of a run."""

import argparse
import math
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import yaml
from pydantic import ValidationError

from trainer.config import ModelConfig, TrainingConfig, format_validation_error, override, yaml_file
from trainer.config.model import SIZES
from trainer.model.precision import resolve
from trainer.run.fit.hardware import free_memory, known_gpu, peak_flops
from trainer.run.fit.memory import Footprint
from trainer.run.fit.micro_batch import fitting
from trainer.system.errors import TrainerError
from trainer.system.gpus import GPUS
from trainer.tools.planner.plan import TOKENS_A_PARAMETER, Machine, Plan
from trainer.tools.planner.speed import tokens_per_second

CPU = "cpu"
GPUS_OF_A_NODE = 8
ASSUMED_MFU = 0.4
VOCABULARY, SEQ_LEN, TOKENS_A_STEP = 50_000, 2048, 2**19  # of a model that is named by its size
DEEPEST, TOLERANCE = 128, 0.05  # of models that are named by a number of parameters
STATE_BYTES = 16  # for each parameter: weight, gradient and two moments in fp32
UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
COUNT = re.compile(r"([0-9][0-9_.]*(?:e[+-]?[0-9]+)?)([kmbt]?)", re.IGNORECASE)


def main(arguments: list[str]) -> int:
    options = _parser().parse_intermixed_args(arguments)
    if options.mfu and options.mfu > 1:
        raise TrainerError(f"--mfu {options.mfu:g} is above 1: write a share of the peak, such as 0.4")
    recipes = [word for word in options.words if "=" not in word]
    if len(recipes) + bool(options.params) != 1:
        raise TrainerError("give a recipe or --params, and one of them only")
    values = (
        _read(_path(recipes[0])) if recipes else _of_size(options.params, options.vocab_size or VOCABULARY)
    )
    for word in options.words:
        if "=" in word:
            override(values, word)
    training = _training(values, recipes[0] if recipes else "--params")
    vocab_size = options.vocab_size or (values.get("data") or values.get("tokenizer") or {}).get("vocab_size")
    if not vocab_size:
        vocab_size = VOCABULARY
        print(
            f"The size of the vocabulary is not known; the plan assumes {vocab_size:,}. Set --vocab-size.\n"
        )
    processes = (values.get("launch") or {}).get("nproc_per_node", 1) if recipes else None
    machine = _machine(options, training, options.gpus or processes)
    if not recipes and STATE_BYTES * training.model.parameters(vocab_size) > machine.memory / 2:
        parallel = training.parallel.model_copy(update={"dp_shard": machine.count})
        training = training.model_copy(update={"parallel": parallel})
    print(_plan(options, training, vocab_size, machine))
    return 0


def _plan(options: argparse.Namespace, training: TrainingConfig, vocab_size: int, machine: Machine) -> Plan:
    device = torch.device("cpu" if machine.name == CPU else "cuda")
    parallel = training.parallel
    data_size = max(1, machine.count // (parallel.tp * parallel.pp))
    footprint = Footprint.measure(training, vocab_size, data_size, device)
    if training.micro_batch_size == "auto":
        size = fitting(footprint, data_size, machine.memory)[0]
        training = training.model_copy(update={"micro_batch_size": size})
        footprint = Footprint.measure(training, vocab_size, data_size, device)
    optimal = TOKENS_A_PARAMETER * training.model.parameters(vocab_size)
    tokens = options.tokens or (optimal if options.params else training.max_tokens)
    memory = footprint.memory()
    flops = training.model.flops_per_token(vocab_size, training.seq_len)
    speed = machine.count * machine.flops * (options.mfu or ASSUMED_MFU) / flops
    known = "as --mfu says" if options.mfu else "assumed: give --mfu if you know better"
    if not options.mfu and options.gpu in (None, CPU):
        if memory.lasting > machine.memory:
            raise TrainerError(
                f"training needs {memory}, and {machine.memory / 1e6:,.0f} MB are free, so that no speed can "
                "be measured here: give --mfu, or another machine with --gpu"
            )
        speed = tokens_per_second(training, vocab_size, device, machine.count)
        known = "measured now on this machine"
    return Plan(machine, training, vocab_size, tokens, speed, known, memory)


def _machine(options: argparse.Namespace, training: TrainingConfig, processes: int | None) -> Machine:
    """The machine with the GPU that the options name, or the one at hand."""
    name = options.gpu or (known_gpu(torch.device("cuda")) if torch.cuda.is_available() else CPU)
    if name is None:
        raise TrainerError(
            f"{torch.cuda.get_device_name()} is not in the table of GPUs: name a similar one with --gpu"
        )
    if name == CPU:
        if options.gpus not in (None, 1):
            raise TrainerError(f"--gpus {options.gpus} is not for the CPU of this machine")
        if training.threads:
            torch.set_num_threads(training.threads)
        device = torch.device("cpu")
        flops = peak_flops(device, resolve(training.precision, device))
        return Machine(CPU, 1, flops, free_memory(device), options.price or 0.0)
    gpu, found = GPUS[name], GPUS_OF_A_NODE if options.gpu else torch.cuda.device_count()
    return Machine(name, processes or found, gpu.flops, gpu.memory, options.price or gpu.price)


def _of_size(params: str, vocab_size: int) -> dict[str, Any]:
    """The settings of a model of a named size, or of one with about as many parameters."""
    model: Any = params
    if params not in SIZES:
        try:
            model = _shaped(_count(params), vocab_size).model_dump()
        except argparse.ArgumentTypeError as error:
            raise TrainerError(f"--params {error}, or the name of a size: {', '.join(SIZES)}") from error
    every = {"every_tokens": TOKENS_A_STEP}
    training = {
        "model": model,
        "seq_len": SEQ_LEN,
        "global_batch_tokens": TOKENS_A_STEP,
        "max_tokens": TOKENS_A_STEP,
        "checkpoint": every,
        "evaluation": every,
    }
    return {"training": training, "data": {"vocab_size": vocab_size}}


def _shaped(parameters: float, vocab_size: int) -> ModelConfig:
    """A model with about so many parameters: the width of the nearest one of `model: {depth: N}`, and as many
    layers as they take.
    """
    models = [ModelConfig.model_validate({"depth": depth}) for depth in range(1, DEEPEST + 1)]
    nearest = min(models, key=lambda model: abs(math.log(model.parameters(vocab_size) / parameters)))
    found, layers = nearest.parameters(vocab_size), nearest.n_layers
    block = nearest.model_copy(update={"n_layers": layers + 1}).parameters(vocab_size) - found
    layers = max(1, layers + round((parameters - found) / block))
    shaped = nearest.model_copy(update={"n_layers": layers})
    if abs(math.log(shaped.parameters(vocab_size) / parameters)) > TOLERANCE:
        raise TrainerError(
            f"no model has about {parameters:,.0f} parameters with a vocabulary of {vocab_size:,}: plan for "
            "another number, or set a smaller --vocab-size"
        )
    return shaped


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
        "that differ, for example training.micro_batch_size=4",
    )
    add("--params", help=f"in place of a recipe a size ({', '.join(SIZES)}) or a count (350m, 1.3e9)")
    add(
        "--gpu",
        choices=[*GPUS, CPU],
        help="default: the GPU of this machine or, without one, its CPU, whose speed is measured",
    )
    add(
        "--gpus",
        type=_positive(int),
        help=f"default: the recipe's processes; without a recipe, the GPUs of this machine or, of a named "
        f"GPU, {GPUS_OF_A_NODE}",
    )
    add(
        "--mfu",
        type=_positive(float),
        help=f"share of the peak that training reaches; default: measured on this machine, {ASSUMED_MFU} "
        "for another",
    )
    add("--price", type=_positive(float), help="USD per GPU-hour; default: an assumption for the GPU")
    add("--tokens", type=_count, help="default: those of the recipe, or the compute-optimal number")
    add("--vocab-size", type=_positive(int), help=f"default: that of the recipe, or {VOCABULARY:,}")
    return parser


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a number above zero")
        return value

    return parse


def _count(text: str) -> float:
    """Reads 350m, 1.3e9, 7B."""
    match = COUNT.fullmatch(text.strip())
    try:
        value = float(match[1].replace("_", "")) * UNITS[match[2].lower()] if match else 0.0
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count such as 350m, 1.3e9 or 7B")
    return value


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
        raise TrainerError(f"{path}: cannot be read: {error}") from error
    if not isinstance(values, dict) or "training" not in values:
        raise TrainerError(f"{path}: has no `training` section")
    return values


def _training(values: dict[str, Any], named: str) -> TrainingConfig:
    try:
        return TrainingConfig.model_validate(values["training"])
    except ValidationError as error:
        raise TrainerError(f"{named}: training: {format_validation_error(error)}") from error
