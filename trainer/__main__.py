"""`python -m trainer CONFIG.yaml [key=value ...]` trains; `python -m trainer COMMAND ...`, one of COMMANDS,
does something else.
"""

import argparse
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError

from trainer.config import SamplesConfig, format_validation_error, load_run_config
from trainer.system import launch
from trainer.system.errors import NOT_PASSED, USER_ERROR, TrainerError
from trainer.system.signals import stop_with_parent


def main(arguments: list[str]) -> int:
    """The exit status: 0 done, 2 for what the user can correct (one message on stderr), 3 for a check not
    passed, 75 stopped and resumable.
    """
    _with_environment(arguments)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # torchrun gives each process a session of its own, where nobody would find it when torchrun is
        # killed, and it may wait for the others.
        stop_with_parent(signal.SIGKILL)
    # Under Dagster the run's own log says the same, message by message.
    level = logging.WARNING if os.environ.get("DAGSTER_PIPES_CONTEXT") else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    # Norm weights stay in fp32 over bf16 activations; torch has no fused kernel for the pair and says so.
    warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")
    try:
        if arguments and arguments[0] in COMMANDS:
            return COMMANDS[arguments[0]](arguments[1:])
        return _train(arguments)
    except TrainerError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return USER_ERROR


def _with_environment(arguments: list[str]) -> None:
    """Starts again, in the same process, when the environment lacks what has to be there before Python
    starts.
    """
    missing = {name: value for name, value in launch.environment().items() if name not in os.environ}
    if missing:
        os.execve(sys.executable, [sys.executable, "-m", "trainer", *arguments], {**os.environ, **missing})


def _train(arguments: list[str]) -> int:
    also = f"Also: python -m trainer COMMAND --help, where COMMAND is one of {', '.join(COMMANDS)}"
    parser = argparse.ArgumentParser(
        prog="python -m trainer",
        description="Train, or go on from the newest checkpoint in run_dir.",
        epilog=also,
    )
    parser.add_argument("config", type=Path, metavar="CONFIG.yaml")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="for example training.optimizer.lr=1e-3"
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="go on from a checkpoint although the settings have changed since",
    )
    parser.add_argument(
        "--profile", action="store_true", help="leave a trace of a few steps in run_dir/profile"
    )
    options = parser.parse_intermixed_args(arguments)
    config = load_run_config(options.config, options.overrides)
    # Imported only now: a mistake in the configuration is answered before torch is loaded.
    from trainer.run.loop import run

    return run(config, options.allow_changes, options.profile)


def _evaluate(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainer evaluate", description="Print validation losses of a checkpoint as JSON."
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument(
        "--config", type=Path, help="default: the config.yaml of the checkpoint's run directory"
    )
    like = 'also print samples, for example {"prompts": ["Once upon a time"], "temperature": 0.7}'
    parser.add_argument("--samples", metavar="JSON", help=like)
    options = parser.parse_args(arguments)
    samples = (
        _samples(lambda: SamplesConfig.model_validate_json(options.samples)) if options.samples else None
    )
    config = load_run_config(options.config or options.checkpoint.resolve().parent.parent / "config.yaml")
    from trainer.run.evaluate import evaluate_checkpoint

    print(json.dumps(evaluate_checkpoint(options.checkpoint, config, samples)))
    return 0


def _generate(arguments: list[str]) -> int:
    defaults = SamplesConfig()
    parser = argparse.ArgumentParser(
        prog="python -m trainer generate",
        description="Print the prompt and what a checkpoint writes after it.",
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--max-new-tokens", type=int, default=defaults.max_new_tokens)
    parser.add_argument(
        "--temperature", type=float, default=defaults.temperature, help="0 takes the likeliest token"
    )
    parser.add_argument("--top-k", type=int, default=defaults.top_k, help="0 keeps the whole distribution")
    parser.add_argument("--top-p", type=float, default=defaults.top_p, help="1 keeps the whole distribution")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    settings = {name: getattr(options, name) for name in ("max_new_tokens", "temperature", "top_k", "top_p")}
    samples = _samples(lambda: SamplesConfig(prompts=[options.prompt], **settings))
    from trainer.run.generate import complete_from_checkpoint

    (written,) = complete_from_checkpoint(options.checkpoint, samples, options.seed)
    print(written["text"])
    return 0


def _samples(given: Callable[[], SamplesConfig]) -> SamplesConfig:
    """TrainerError names the setting that cannot be."""
    try:
        return given()
    except ValidationError as error:
        raise TrainerError(f"samples: {format_validation_error(error)}") from error


def _check(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainer check", description="Read an exported model back; print what it is as JSON."
    )
    parser.add_argument(
        "export",
        type=Path,
        help="such as the directory hf of a checkpoint; compared with `transformers` where that is installed",
    )
    options = parser.parse_args(arguments)
    from trainer.hf import check_with_transformers

    found = check_with_transformers(options.export)
    print(json.dumps({**asdict(found), "passed": found.passed}))
    return 0 if found.passed else NOT_PASSED


def _plan(arguments: list[str]) -> int:
    from trainer.tools.planner.cli import main

    return main(arguments)


def _compare(arguments: list[str]) -> int:
    from trainer.tools.compare import main

    return main(arguments)


def _sweep(arguments: list[str]) -> int:
    from trainer.tools.sweep import main

    return main(arguments)


COMMANDS = {
    "evaluate": _evaluate,
    "generate": _generate,
    "check": _check,
    "plan": _plan,
    "compare": _compare,
    "sweep": _sweep,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
