"""`python -m trainer plan`: what a run will take and give."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import yaml
from pydantic import ValidationError

from trainer.config import ModelConfig, TrainingConfig
from trainer.model.activation_checkpointing import Recompute
from trainer.system.errors import TrainerError
from trainer.system.gpus import GPUS, PRICES_AS_OF
from trainer.tools.planner.gpu_memory import STATE_BYTES, Workload
from trainer.tools.planner.laws import LAWS
from trainer.tools.planner.plan import DAY, Machine, Run, best_run
from trainer.tools.planner.shape import shaped
from trainer.tools.planner.text import describe

VOCABULARY = 50_000  # where nothing says how large it is
UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
COUNT = re.compile(r"([0-9][0-9_.]*(?:e[+-]?[0-9]+)?)([kmbt]?)", re.IGNORECASE)


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    law, machine = LAWS[options.law], _machine(options)
    training, vocab_size = (
        _configured(options.params)
        if options.params and options.params.endswith((".yaml", ".yml"))
        else (None, None)
    )
    if training and not (options.vocab_size or vocab_size):
        print(
            f"{options.params} does not say how large its vocabulary is: {VOCABULARY:,} is assumed, give "
            "--vocab-size\n"
        )
    vocab_size = options.vocab_size or vocab_size or VOCABULARY
    seq_len = options.seq_len or (training.seq_len if training else 2048)
    seconds = (
        options.days * DAY
        if options.days
        else machine.seconds_for(options.budget)
        if options.budget
        else None
    )
    if training or options.params:
        model = training.model if training else _model(options.params, vocab_size)
        tokens = options.tokens or (
            training.max_tokens if training else law.best_tokens(model.parameters(vocab_size))
        )
        run = Run(machine, model, vocab_size, seq_len, tokens)
        run = run.within(seconds) if seconds else run
    elif seconds:
        run = best_run(machine, seconds, vocab_size, seq_len, law)
    else:
        raise TrainerError(
            "say what to plan: --params for a model, --budget or --days for the best model that they allow"
        )
    work = Workload(
        run.model,
        vocab_size,
        seq_len,
        micro_batch_size=options.micro_batch_size or (training.micro_batch_size if training else 8),
        optimizer=options.optimizer or (training.optimizer.kind if training else "adamw"),
        activation_checkpointing=options.activation_checkpointing
        or (training.activation_checkpointing if training else "none"),
    )
    print(describe(run, work, law, options.gpu))
    if options.plot:
        # Only a drawing needs matplotlib.
        from trainer.tools.planner.plot import draw

        draw(run, options.plot)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer plan",
        description="Memory, time, cost and expected loss of a run, before it is started.",
    )
    parser.add_argument(
        "--params",
        help="a size (171m, 1b, 7b), a count (350m, 1.3e9), or a YAML file with a `training` section; "
        "default: the best",
    )
    parser.add_argument("--gpus", type=_positive(int), default=8, help="default: 8")
    parser.add_argument("--gpu", choices=GPUS, default="h100", help="default: h100")
    parser.add_argument(
        "--mfu",
        type=_positive(float),
        default=0.4,
        help="share of the peak that training reaches; default: 0.4",
    )
    parser.add_argument(
        "--price",
        type=_positive(float),
        help=f"USD a GPU-hour; default: what was assumed for the GPU in {PRICES_AS_OF}",
    )
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--budget", type=_positive(float), help="USD to spend")
    limit.add_argument("--days", type=_positive(float), help="days to train")
    limit.add_argument(
        "--tokens", type=_count, help="tokens to train on; default: the compute-optimal number"
    )
    parser.add_argument("--law", choices=LAWS, default="epoch", help="default: epoch")
    parser.add_argument("--vocab-size", type=_positive(int), help=f"default: the file's, or {VOCABULARY:,}")
    parser.add_argument("--seq-len", type=_positive(int), help="default: the file's, or 2,048")
    parser.add_argument(
        "--micro-batch-size",
        type=_positive(int),
        help="windows on one GPU at a time; default: the file's, or 8",
    )
    parser.add_argument("--optimizer", choices=STATE_BYTES, help="default: the file's, or adamw")
    parser.add_argument(
        "--activation-checkpointing", choices=get_args(Recompute), help="default: the file's, or none"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="draw the expected loss over tokens and sizes"
    )
    return parser


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not value > 0 or value == float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not above zero")
        return value

    return parse


def _count(text: str) -> float:
    """350m, 1.3e9, 7B."""
    match = COUNT.fullmatch(text.strip())
    try:
        value = float(match[1].replace("_", "")) * UNITS[match[2].lower()] if match else 0.0
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count such as 350m, 1.3e9 or 7B")
    return value


def _machine(options: argparse.Namespace) -> Machine:
    if options.mfu > 1:
        raise TrainerError(f"--mfu {options.mfu:g} is above 1: it is a share of the GPU's peak")
    gpu = GPUS[options.gpu]
    return Machine(gpu, options.gpus, options.mfu, options.price or gpu.price)


def _model(text: str, vocab_size: int) -> ModelConfig:
    """A named size, else a shape of about so many parameters."""
    try:
        return ModelConfig.model_validate(text)
    except ValidationError:
        pass
    try:
        return shaped(_count(text), vocab_size)
    except argparse.ArgumentTypeError as error:
        raise TrainerError(f"--params {error}, nor the name of a size or of a YAML file") from error


def _configured(path: str) -> tuple[TrainingConfig, int | None]:
    """The `training` section of a run's configuration or of a recipe, and the vocabulary if the file says it.
    TrainerError.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        training = TrainingConfig.model_validate(values["training"])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError) as error:
        raise TrainerError(f"{path}: no `training` section can be read from it: {error}") from error
    except ValidationError as error:
        problem = error.errors()[0]
        raise TrainerError(
            f"{path}: training.{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        ) from error
    vocabulary = values.get("data") or values.get("tokenizer") or {}
    return training, vocabulary.get("vocab_size")
