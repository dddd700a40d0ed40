"""How kernels are compiled: once per machine, at the first call.

Not earlier, because importing numba takes half a second, which only users of a kernel should wait for.
"""

from collections.abc import Callable
from functools import cached_property, partial, update_wrapper
from typing import Any, Literal

# The release whose internals pipeline/stages/compiler.py knows. Any other compiles as it always does.
COMPILER_KNOWS = "0.68."
Kind = Literal["kernel", "inner", "borrowing", "inlined"]
_PLAIN: dict[Kind, dict[str, Any]] = {
    "kernel": {"cache": True, "nogil": True},
    "inner": {"no_cpython_wrapper": True},
    "borrowing": {"no_cpython_wrapper": True, "_nrt": False},
    "inlined": {"inline": "always"},
}


class Compiled:
    """A function that numba compiles when Python, or a function under compilation, first calls it."""

    def __init__(
        self, function: Callable[..., Any], kind: Literal["kernel", "inner", "borrowing", "inlined"]
    ):
        self._function, self._kind = function, kind
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self._dispatcher(*arguments)

    @cached_property
    def _dispatcher(self) -> Any:
        import numba

        if not numba.__version__.startswith(COMPILER_KNOWS):
            return numba.njit(no_cfunc_wrapper=True, **_PLAIN[self._kind])(self._function)
        from pipeline.stages import compiler

        return getattr(compiler, self._kind)(self._function)

    def __getattr__(self, name: str) -> Any:
        """numba recognises a compiled function, which a kernel calls, by its attributes."""
        return getattr(self._dispatcher, name)


# Called from Python, and kept on disk with all that it calls.
kernel = partial(Compiled, kind="kernel")
# Called from kernels only.
inner = partial(Compiled, kind="inner")
# As `inner`, for what neither makes nor returns an array. A view by `.view()` counts as made.
borrowing = partial(Compiled, kind="borrowing")
# As `borrowing`, and part of each caller: faster where it is called for each word or document.
inlined = partial(Compiled, kind="inlined")
