"""`python -m trainer plan`: memory, time, cost and expected loss of a run."""

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import torch
import yaml
from pydantic import ValidationError

from trainer.config import ModelConfig, TrainingConfig, format_validation_error
from trainer.config.optimizer import OptimizerKind
from trainer.model.activation_checkpointing import ActivationCheckpointing
from trainer.run.fit.micro_batch import fitting
from trainer.system.errors import TrainerError
from trainer.system.gpus import GPUS, PRICES_AS_OF
from trainer.tools.planner import law
from trainer.tools.planner.machine import CPU, GPUS_OF_A_NODE, rates_of
from trainer.tools.planner.machine import machine as machine_of
from trainer.tools.planner.plan import DAY, Machine, Run, best_run
from trainer.tools.planner.roofline import Step, step
from trainer.tools.planner.shape import shaped
from trainer.tools.planner.text import describe, describe_on_cpu

VOCABULARY, SEQ_LEN, MICRO_BATCH_SIZE = 50_000, 2048, 8  # unless a file or an option sets them
TOKENS_A_STEP = 2**19
STATE_BYTES = 16  # for each parameter: weight, gradient and two moments in fp32
SEARCHES = 3
UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
COUNT = re.compile(r"([0-9][0-9_.]*(?:e[+-]?[0-9]+)?)([kmbt]?)", re.IGNORECASE)


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.mfu and options.mfu > 1:
        raise TrainerError(f"--mfu {options.mfu:g} is above 1: write a share of the peak, such as 0.4")
    if options.recipe and options.params:
        raise TrainerError("give a recipe or --params, not both")
    configured, vocab_size, processes = None, options.vocab_size, options.gpus
    named = options.recipe or (options.params if _is_file(options.params) else None)
    if named:
        configured, in_file, launched = _configured(_path(named))
        vocab_size, processes = vocab_size or in_file, processes or launched
        if not vocab_size:
            print(
                f"{named} does not set the size of its vocabulary; the plan assumes {VOCABULARY:,}. "
                "Set it with --vocab-size.\n"
            )
    elif not (options.params or options.budget or options.days):
        raise TrainerError(
            "give a recipe or --params to plan for a model, or --budget or --days for the best model "
            "within them"
        )
    gpu, machine = machine_of(options.gpu, processes, options.mfu, options.price, configured)
    if options.budget and not machine.price:
        raise TrainerError("--budget needs a price: set --price in USD per hour, or name a --gpu")
    run, training, step = _planned(options, gpu, machine, configured, vocab_size or VOCABULARY)
    print(describe_on_cpu(run, training, step) if gpu == CPU else describe(run, training, gpu, step))
    return 0


def _planned(
    options: argparse.Namespace,
    gpu: str,
    machine: Machine,
    configured: TrainingConfig | None,
    vocab_size: int,
) -> tuple[Run, TrainingConfig, Step | None]:
    """The run, its settings, and without --mfu the step that its time comes from."""
    run = _run(options, machine, configured, vocab_size)
    training, found = _training(options, gpu, configured, run), None
    # The best model within a budget depends on the time of its step, which depends on the model.
    for _ in range(0 if options.mfu else 1 if configured or options.params else SEARCHES):
        found = _step(options, gpu, run, training, is_recipe=configured is not None)
        run = _run(options, replace(machine, mfu=run.mfu_of(found)), configured, vocab_size)
        if run.model != training.model:
            training = _training(options, gpu, configured, run)
    return run, training, found


def _step(options: argparse.Namespace, gpu: str, run: Run, training: TrainingConfig, is_recipe: bool) -> Step:
    """Without a recipe a step has TOKENS_A_STEP tokens, and `dp_shard` splits what would fill half a GPU."""
    gpus = run.machine.gpus
    if not is_recipe:
        changes: dict[str, Any] = {"global_batch_tokens": TOKENS_A_STEP}
        if STATE_BYTES * run.parameters > run.machine.gpu.memory / 2:
            changes["parallel"] = training.parallel.model_copy(update={"dp_shard": gpus})
        training = training.model_copy(update=changes)
    on_gpu = gpu != CPU
    rates = rates_of(options.gpu, gpu, training, run.vocab_size)
    blocks_are_compiled = on_gpu if training.compile == "auto" else bool(training.compile)
    return step(training, run.vocab_size, rates, gpus, blocks_are_compiled, on_gpu and blocks_are_compiled)


def _run(
    options: argparse.Namespace, machine: Machine, configured: TrainingConfig | None, vocab_size: int
) -> Run:
    """The model and tokens that the options ask for, or the best ones within the budget or the days."""
    seq_len = options.seq_len or (configured.seq_len if configured else SEQ_LEN)
    seconds = options.days * DAY if options.days else None
    if options.budget:
        seconds = machine.seconds_for(options.budget)
    if configured or options.params:
        model = configured.model if configured else _model(options.params, vocab_size)
        tokens = options.tokens or (
            configured.max_tokens if configured else law.best_tokens(model.parameters(vocab_size))
        )
        run = Run(machine, model, vocab_size, seq_len, tokens)
        return run.within(seconds) if seconds else run
    assert seconds is not None
    return best_run(machine, seconds, vocab_size, seq_len)


def _training(
    options: argparse.Namespace, gpu: str, configured: TrainingConfig | None, run: Run
) -> TrainingConfig:
    """The settings that decide how much memory and time a step takes."""
    micro_batch_size = options.micro_batch_size or (
        configured.micro_batch_size if configured else MICRO_BATCH_SIZE
    )
    changes: dict[str, Any] = {"seq_len": run.seq_len, "micro_batch_size": micro_batch_size}
    training = configured
    if training is None:
        batch = dict.fromkeys(("global_batch_tokens", "max_tokens"), run.seq_len * micro_batch_size)
        every = {key: {"every_tokens": 1} for key in ("checkpoint", "evaluation")}
        training = TrainingConfig.model_validate({"model": run.model, **changes, **batch, **every})
    if options.optimizer:
        changes["optimizer"] = training.optimizer.model_copy(update={"kind": options.optimizer})
    if options.activation_checkpointing:
        changes["activation_checkpointing"] = options.activation_checkpointing
    training = training.model_copy(update=changes)
    if micro_batch_size == "auto":
        device, parallel = torch.device("cpu" if gpu == CPU else "cuda"), training.parallel
        data_size = max(1, run.machine.gpus // (parallel.tp * parallel.pp))
        sizes = fitting(training, run.vocab_size, data_size, device, run.machine.gpu.memory).sizes
        training = training.model_copy(update={"micro_batch_size": sizes[0]})
    return training


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer plan",
        description="Memory, time, cost and expected loss of a run, before it is started.",
    )
    add = parser.add_argument
    add(
        "recipe",
        nargs="?",
        metavar="RECIPE",
        help="a recipe: its path or, if it ships, its name; also a run's directory or config.yaml",
    )
    add(
        "--params",
        help="a size (171m, 1b, 7b) or a count (350m, 1.3e9) in place of a recipe; default: the best within "
        "--budget or --days",
    )
    add(
        "--gpu",
        choices=[*GPUS, CPU],
        help="cpu: the CPU of this machine, measured; default: the GPU of this machine or, without one, cpu",
    )
    add(
        "--gpus",
        type=_positive(int),
        help=f"default: the recipe's processes; without a recipe, those of this machine or, of a named GPU, "
        f"{GPUS_OF_A_NODE}",
    )
    add(
        "--mfu",
        type=_positive(float),
        help="share of the peak that training reaches; default: by a roofline of the model on the machine",
    )
    add(
        "--price",
        type=_positive(float),
        help=f"USD per GPU-hour; default: a price of {PRICES_AS_OF} assumed for the GPU",
    )
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--budget", type=_positive(float), help="USD to spend")
    limit.add_argument("--days", type=_positive(float), help="days to train")
    limit.add_argument(
        "--tokens", type=_count, help="tokens to train on; default: the file's, or the compute-optimal number"
    )
    add("--vocab-size", type=_positive(int), help=f"default: the file's, or {VOCABULARY:,}")
    add("--seq-len", type=_positive(int), help=f"default: the file's, or {SEQ_LEN:,}")
    add(
        "--micro-batch-size",
        type=_positive(int),
        help=f"windows on one GPU at a time; default: the file's, or {MICRO_BATCH_SIZE}",
    )
    add("--optimizer", choices=get_args(OptimizerKind), help="default: the file's, or adamw")
    add(
        "--activation-checkpointing",
        choices=get_args(ActivationCheckpointing),
        help="default: the file's, or none",
    )
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


def _model(text: str, vocab_size: int) -> ModelConfig:
    """A named size, or else a shape with about as many parameters."""
    try:
        return ModelConfig.model_validate(text)
    except ValidationError:
        pass
    try:
        return shaped(_count(text), vocab_size)
    except argparse.ArgumentTypeError as error:
        raise TrainerError(f"--params {error}, the name of a size, or a YAML file") from error


def _is_file(text: str | None) -> bool:
    return text is not None and text.endswith((".yaml", ".yml"))


def _path(named: str) -> Path:
    """The file of a recipe or a run. Raises TrainerError when there is none."""
    package = find_spec("pipeline")  # not imported: the trainer works without it
    folder = Path(package.origin).parent / "recipes" if package and package.origin else Path()
    shipped, path = {recipe.stem: recipe for recipe in sorted(folder.glob("*.yaml"))}, Path(named)
    if named in shipped:
        return shipped[named]
    if not path.exists() and not _is_file(named):
        names = f", or the name of one that ships: {', '.join(shipped)}" if shipped else ""
        raise TrainerError(f"{named}: no such recipe. Give the path of a YAML file{names}")
    return path / "config.yaml" if path.is_dir() else path


def _configured(path: Path) -> tuple[TrainingConfig, int | None, int]:
    """The `training` section of a recipe or a run's configuration, the vocabulary size if it is set, and the
    number of processes that a recipe starts.

    Raises TrainerError when the file has no valid `training` section.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        training = TrainingConfig.model_validate(values["training"])
    except ValidationError as error:
        raise TrainerError(f"{path}: training: {format_validation_error(error)}") from error
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        raise TrainerError(f"{path}: no `training` section can be read: {error}") from error
    vocabulary, launch = values.get("data") or values.get("tokenizer") or {}, values.get("launch") or {}
    return training, vocabulary.get("vocab_size"), launch.get("nproc_per_node", 1)
