"""`python -m trainer CONFIG.yaml [key=value ...]` trains; `python -m trainer COMMAND ...` runs a command."""

from trainer.system import ctrl_c

if __name__ == "__main__":  # what follows takes a second
    ctrl_c.ends_the_program()

import argparse
import faulthandler
import gc
import io
import json
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from trainer.config.run import load_to_train
from trainer.system import launch, streams, terminal
from trainer.system.errors import (
    OUT_OF_MEMORY,
    PROCESS_LOST,
    USER_ERROR,
    ProcessLostError,
    ToldByMainError,
    TrainerError,
    in_every_process,
    is_out_of_memory,
)
from trainer.system.open_files import allow_enough
from trainer.system.signals import loading, stop_with_parent
from trainer.tools import commands

# For torchrun, which tells of the process that ended first, to notice the one that was lost.
LATER_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 done, 1 when another process of the training is lost, 2 after an error that
    the user can correct (both: one message on stderr), 3 after a failed check, 75 stopped and resumable.
    """
    _with_environment(arguments)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # torchrun starts each process in a session of its own. If torchrun is killed, the process would stay
        # and might wait for the others.
        stop_with_parent(signal.SIGKILL)
    console = logging.StreamHandler(sys.stderr)
    # Under Dagster, the run's log has the same events; log.txt has them in any case.
    console.setLevel(logging.WARNING if os.environ.get("DAGSTER_PIPES_CONTEXT") else logging.INFO)
    console.addFilter(terminal.is_news)
    if os.environ.get("RANK", "0") != "0":  # the main process says it for all
        console.setLevel(logging.ERROR)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", handlers=[console]
    )
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # what is typed or piped may be in another encoding
    # Norm weights are fp32 and activations bf16; torch warns that it has no fused kernel for this.
    warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")
    # It concerns outputs of blocks that are changed in place, which no block's is.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    return _ended(arguments)


def _ended(arguments: list[str]) -> int:
    """Runs a command to its end. Returns the exit status."""
    try:
        with ctrl_c.raises():
            with in_every_process():
                allow_enough()
            is_command = arguments and arguments[0] in COMMANDS
            with streams.showing_help(arguments):
                status = _command(arguments[0], arguments[1:]) if is_command else _train(arguments)
            print(end="", flush=True)
            return status
    except streams.NotPrintedError as error:
        return error.ended("trainer")
    except ToldByMainError:
        if os.environ.get("LOCAL_RANK") == "0":  # on another machine than the main process
            _end_torchrun()
        return USER_ERROR
    except TrainerError as error:
        print(f"trainer: {error}", file=sys.stderr, flush=True)
        _end_torchrun()
        return USER_ERROR
    except ProcessLostError as error:
        print(f"trainer: {error}", file=sys.stderr, flush=True)
        time.sleep(LATER_SECONDS)
        return PROCESS_LOST
    except (MemoryError, ImportError) as error:
        if not is_out_of_memory(error):
            raise
        print(f"trainer: {OUT_OF_MEMORY}", file=sys.stderr, flush=True)
        return USER_ERROR
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _command(name: str, arguments: list[str]) -> int:
    """Raises TrainerError for a file that cannot be read or written."""
    try:
        return COMMANDS[name](arguments)
    except OSError as error:
        if error.filename is None:
            raise
        raise TrainerError(f"{os.fsdecode(error.filename)}: {error.strerror}") from error


def _end_torchrun() -> None:
    """Ends the torchrun that started this process, if it would start it again: a mistake stays one.

    `trainer.system.torchrun` knows by the signal that it is no stop.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ and launch.restarts_left():
        os.kill(os.getppid(), signal.SIGQUIT)


def _with_environment(arguments: list[str]) -> None:
    """Restarts Python in the same process if variables that must be set before it starts are not."""
    missing = {name: value for name, value in launch.environment().items() if name not in os.environ}
    if sys.flags.optimize > 1:  # transformers reads docstrings, which Python then leaves out
        missing["PYTHONOPTIMIZE"] = ""  # as libraries are compiled when they are installed
    if missing:
        os.execve(sys.executable, [sys.executable, "-m", "trainer", *arguments], {**os.environ, **missing})


def _train(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainer",
        description="Train, or resume from the newest checkpoint in run_dir.",
        epilog=f"Also: python -m trainer COMMAND --help, where COMMAND is one of {', '.join(COMMANDS)}",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG.yaml", help="the settings of the run")
    add("overrides", nargs="*", metavar="key=value", help="a setting, such as training.optimizer.lr=1e-3")
    add("--allow-changes", action="store_true", help="resume although settings or data have changed")
    add("--profile", action="store_true", help="write a trace of a few steps to run_dir/profile")
    if not arguments:
        parser.print_help(sys.stderr)
        return USER_ERROR
    options = parser.parse_intermixed_args(arguments)
    with in_every_process():
        config = load_to_train(options.config, options.overrides)
    # Imported late, so that a mistake in the configuration is reported before torch is loaded.
    with loading():
        from trainer.run.loop import run

    return run(config, options.allow_changes, options.profile)


def _several(arguments: list[str]) -> int:
    about = "Run commands in one process, which loads PyTorch once. Each line of standard input is a JSON "
    about += "list of arguments. For each, a line has the exit status and what the command printed, as JSON."
    argparse.ArgumentParser(prog="python -m trainer several", description=about).parse_args(arguments)
    for number, line in enumerate(sys.stdin, start=1):
        command = _listed(line, number)
        with redirect_stdout(io.StringIO()) as printed:
            try:
                status = _ended(command)
            except SystemExit as error:  # argparse's, which has said why
                status = int(error.code or 0)
        print(json.dumps({"status": status, "printed": printed.getvalue()}), flush=True)
    return 0


def _listed(line: str, number: int) -> list[str]:
    """The arguments in a line of JSON. Raises TrainerError."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        example = '["evaluate", "--model", "6ddca120"]'
        raise TrainerError(f"line {number} of standard input is not a JSON list of texts, such as {example}")
    return found


COMMANDS: dict[str, Callable[[list[str]], int]] = {**commands.COMMANDS, "several": _several}

if __name__ == "__main__":
    streams.keep()
    faulthandler.enable()
    if os.environ.get("RANK", "0") == "0":
        terminal.begin()
    status = main(sys.argv[1:])
    # At its end Python looks for garbage in all that was imported, up to half a second in vain. But Triton of
    # PyTorch 2.15 prints thirty lines about leaks if its own is left.
    if "triton" not in sys.modules:
        gc.freeze()
    sys.exit(status)
