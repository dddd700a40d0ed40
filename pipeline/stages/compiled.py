"""How kernels are compiled: once per machine, at the first call, without an entry for C.

Not earlier, because importing numba takes half a second, which only users of a kernel should wait for.
"""

from collections.abc import Callable
from functools import cached_property, partial, update_wrapper
from typing import Any


class Compiled:
    """A function that numba compiles when Python, or a function under compilation, first calls it."""

    def __init__(self, function: Callable[..., Any], **options: Any):
        self._function, self._options = function, options
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self._dispatcher(*arguments)

    @cached_property
    def _dispatcher(self) -> Any:
        from numba import njit

        return njit(no_cfunc_wrapper=True, **self._options)(self._function)

    def __getattr__(self, name: str) -> Any:
        """numba recognises a compiled function, which a kernel calls, by its attributes."""
        return getattr(self._dispatcher, name)


# Called from Python.
kernel = partial(Compiled, cache=True)
# Called from kernels only: without an entry for Python, the first run compiles a fifth faster.
inner = partial(Compiled, cache=True, no_cpython_wrapper=True)
# As `inner`, for parts that are cached with the kernel that calls them.
inner_uncached = partial(Compiled, no_cpython_wrapper=True)
# Becomes part of its caller.
inlined = partial(Compiled, inline="always")
