"""From `package.module:name` to a function or class, and what it takes as parameters."""

import importlib
import inspect
import os
import sys
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.store.errors import PipelineError, did_you_mean, last_words

Code = Callable[..., Any]
# sys.exit() in the user's code must not end the run without a word; asyncio's error is no Exception.
RAISED = (Exception, SystemExit, CancelledError)


class PluginError(PipelineError):
    """The user's own code cannot be loaded, or failed on more documents than allowed."""


def make_importable(directory: Path) -> None:
    """Lets modules in `directory` be imported, here and in workers. Installed ones come first."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


@lru_cache
def load(reference: str) -> Code:
    """The function or class that `package.module:name` names. Raises PluginError, in one sentence."""
    module_name, colon, path = reference.partition(":")
    if not colon:
        raise PluginError(f"{reference!r}: name a function or class in a module as `package.module:name`")
    found: Any = _module(module_name)
    where = f"{module_name} ({getattr(found, '__file__', 'a part of Python') or 'a package'})"
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, dir(found))
            raise PluginError(f"{reference!r}: {where} has no {name!r}{hint and f': {hint}'}")
        found = getattr(found, name)
    if not callable(found):
        raise PluginError(f"{reference!r} is of type {type(found).__name__}: name a function or a class")
    return found


def _module(name: str) -> Any:
    try:
        # Standard output is for results, which another program may read.
        with in_one_process(), redirect_stdout(sys.stderr), last_words(ended(f"imported module {name!r}")):
            return importlib.import_module(name)
    except RAISED as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent is not None and f"{name}.".startswith(f"{absent}."):
            raise PluginError(
                f"there is no module {absent!r}: put it beside the recipe, install its package, or add "
                "its directory to PYTHONPATH"
            ) from None
        raise PluginError(f"module {name!r} cannot be imported: {described(error, name)}") from None


def ended(doing: str) -> str:
    """What is said when the user's code has ended the process in which it is called."""
    return f"error: the program ended while it {doing}: correct the code, which must not end its process"


@contextmanager
def in_one_process() -> Iterator[None]:
    """Ends a process that the user's code forked and that comes back: it would write into our files."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)


def described(error: BaseException, module: str) -> str:
    """An exception in one line: type, message and place."""
    said = message(error)
    return f"{type(error).__name__}: {said}{place(error, module)}" if said else type(error).__name__


def message(error: BaseException) -> str:
    """The message of an exception in one line of valid UTF-8; empty when it cannot be had."""
    try:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:
        return ""
    return " ".join(said.split()).encode("utf-8", "backslashreplace").decode()


def place(error: BaseException, module: str) -> str:
    """` (file, line 12)`: the last line the exception passed in `module`'s package; empty if none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({_short(error.filename)}, line {error.lineno})"
    package = module.partition(".")[0]
    lines = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ]
    return f" ({_short(lines[-1][0])}, line {lines[-1][1]})" if lines else ""


def _short(filename: str) -> str:
    """The path below the directory that it was imported from: stored tables hold no absolute paths."""
    path = Path(filename)
    roots = [Path(root) for root in sys.path if root and path.is_relative_to(root)]
    return path.relative_to(max(roots, key=lambda root: len(root.parts))).as_posix() if roots else path.name


def check_arguments(
    code: Code, params: Mapping[str, Any], positional: int, named: str, known: Sequence[str] = ()
) -> None:
    """Raises PluginError when `code` does not take these `params` as keyword arguments after `positional`
    others; the error lists the parameters that are `known`, those of `code` when none are given.
    """
    try:
        _signature(code).bind(*[None] * positional, **params)
    except TypeError as error:
        takes = ", ".join(known or arguments(code)[positional:]) or "none"
        raise PluginError(f"{named} does not fit its `params`: {error}; it takes {takes}") from None


def arguments(code: Code) -> list[str]:
    """The names of the parameters of a function, or of a class's constructor."""
    return list(_signature(code).parameters)


def _signature(code: Code) -> inspect.Signature:
    try:
        return inspect.signature(code)
    except ValueError:  # written in C
        raise PluginError(f"{code!r} does not tell its parameters: wrap it in a Python function") from None
