"""How kernels are compiled: once per machine, and no more than is called. Nothing is passed to C, so nothing
has an entry for it.

Not before the first call, either: numba takes half a second to import, which nobody who only looks at the
graph should wait for.
"""

from collections.abc import Callable
from functools import cached_property, partial, update_wrapper
from typing import Any


class Compiled:
    """A function as numba compiles it when it is called, by Python or by a function that is being
    compiled itself.
    """

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
        """numba takes for a compiled function what has the attributes of one: it looks for them on whatever a
        kernel calls.
        """
        return getattr(self._dispatcher, name)


# Called from Python.
kernel = partial(Compiled, cache=True)
# Called from kernels only: without an entry for Python, the first run compiles a fifth faster.
inner = partial(Compiled, cache=True, no_cpython_wrapper=True)
# As `inner`, for kernels that keep all of their parts compiled with them.
part = partial(Compiled, no_cpython_wrapper=True)
# Becomes part of what calls it.
inlined = partial(Compiled, inline="always")
