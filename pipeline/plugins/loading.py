"""From `package.module:name`, or the name of an entry point, to a function or class."""

import difflib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pipeline.store.errors import PipelineError

FILTERS, TRANSFORMS, SOURCES = "groundwork.filters", "groundwork.transforms", "groundwork.sources"
Code = Callable[..., Any]
RAISED = (Exception, SystemExit)  # sys.exit() in the user's code must not end the run without a word


class PluginError(PipelineError):
    """The user's own code cannot be loaded, or failed on more documents than allowed."""


def make_importable(directory: Path) -> None:
    """Lets modules in `directory` be imported, here and in worker processes, which start with this search
    path. Installed modules of the same name come first.
    """
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


@lru_cache
def load(group: str, reference: str) -> Code:
    """The function or class that `reference` names; a name without a colon is an entry point of `group`.

    Raises PluginError, in one sentence.
    """
    if ":" not in reference:
        reference = _entry_point(group, reference).value
    module_name, _, path = reference.partition(":")
    found: Any = _module(module_name.strip())
    where = f"{module_name} ({found.__file__ or 'a package'})"
    for name in path.split("[")[0].strip().split("."):
        if not hasattr(found, name):
            nearest = difflib.get_close_matches(name, dir(found), n=1)
            hint = f": did you mean {nearest[0]!r}?" if nearest else ""
            raise PluginError(f"{reference!r}: {where} has no {name!r}{hint}")
        found = getattr(found, name)
    if not callable(found):
        raise PluginError(f"{reference!r} is of type {type(found).__name__}: name a function or a class")
    code: Code = found
    return code


def _entry_point(group: str, name: str) -> EntryPoint:
    declared = entry_points(group=group)
    if name not in declared.names:
        there = ", ".join(sorted(declared.names)) or "none"
        raise PluginError(
            f"{name!r} is not an entry point of {group!r}, which has: {there}. Name a function or class in a "
            "module as `package.module:name`"
        )
    return declared[name]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise PluginError(
                f"there is no module {error.name!r}: put it beside the recipe, install its package, or add "
                "its directory to PYTHONPATH"
            ) from None
        raise _broken(name, error) from None
    except RAISED as error:
        raise _broken(name, error) from None


def _broken(module: str, error: BaseException) -> PluginError:
    return PluginError(f"module {module!r} cannot be imported: {described(error, module)}")


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
    """` (file, line 12)`: the last line that the exception passed in the package of `module`; empty when it
    passed none.
    """
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


def check_arguments(code: Code, params: Mapping[str, Any], positional: int, named: str) -> None:
    """Raises PluginError when `code` does not take these `params` as keyword arguments after `positional`
    others.
    """
    signature = _signature(code)
    if signature is None:
        return
    try:
        signature.bind(*[None] * positional, **params)
    except TypeError as error:
        takes = ", ".join(arguments(code)[positional:]) or "none"
        raise PluginError(f"{named} does not fit its `params`: {error}; it takes {takes}") from None


def arguments(code: Code) -> list[str]:
    """The names of the parameters of a function, or of a class's constructor."""
    signature = _signature(code)
    return list(signature.parameters) if signature else []


def takes_any(code: Code) -> bool:
    """Whether it takes keyword arguments of any name."""
    signature = _signature(code)
    return signature is None or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.parameters.values()
    )


def _signature(code: Code) -> inspect.Signature | None:
    try:
        return inspect.signature(code)
    except (TypeError, ValueError):  # of a class written in C
        return None
