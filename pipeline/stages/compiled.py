"""How numba compiles kernels: once per machine, at the first call.

numba is imported with the first call of a kernel, because the import takes half a second, which only users
of a kernel should wait for.
"""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, cached_property, partial, update_wrapper
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pipeline.store.kernels import find_place


class Compiled:
    """A function that numba compiles when Python, or a function under compilation, first calls it."""

    def __init__(self, function: Callable[..., Any], **options: Any):
        self._function, self._options = function, options
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self._dispatcher(*arguments)

    @cached_property
    def _dispatcher(self) -> Any:
        import numba
        from numba.core.types.misc import unliteral

        find_place()
        _announce_compiling()
        compiler = _part_of_kernels() if self._options.get("no_cpython_wrapper") else None
        jit = numba.njit(no_cfunc_wrapper=True, pipeline_class=compiler, **self._options)
        dispatcher = jit(self._function)
        compiled_for = dispatcher.get_call_template
        # numba compiles a function once more for each constant that a kernel gives it; one version serves all
        dispatcher.get_call_template = lambda args, kws: compiled_for(tuple(map(unliteral, args)), kws)
        if self._options.get("cache"):
            dispatcher._cache = _kept_with_sources()(self._function)
        return dispatcher

    def __getattr__(self, name: str) -> Any:
        """numba recognizes a compiled function, which a kernel calls, by its attributes."""
        return getattr(self._dispatcher, name)


@cache
def _kept_with_sources() -> type:
    """numba's cache on disk, for a kernel and the files of all functions that it may call: numba alone
    notices changes in a kernel's own file only, so that an update would run the old code.
    """
    from numba.core.caching import FunctionCache

    class KeptWithSources(FunctionCache):
        def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
            return (*super()._index_key(signature, codegen), sources())

    return KeptWithSources


@cache
def _part_of_kernels() -> type:
    """How numba compiles a function that only kernels call: LLVM optimizes it, and makes machine code of it,
    in each of these kernels. To do both once more for the function alone, of which nobody has a use, took
    a third of the time.
    """
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler

    class WithoutEnvironment:
        """In place of the code generator, which would write an address into machine code that is not made."""

        def set_env(self, *_: object) -> None:
            pass

    class Part(JITCodeLibrary):
        codegen = WithoutEnvironment()

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

    class PartOfKernels(Compiler):
        def define_pipelines(self) -> Any:
            self.state.library = Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
            return super().define_pipelines()

    return PartOfKernels


# Called from Python, and kept on disk with all that it calls. Other threads run on, such as the thread that
# hands tasks to worker processes.
kernel = partial(Compiled, cache=True, nogil=True)
# Called from kernels only. Makes and returns no array (`.view()` makes one), and so counts no references.
borrowing = partial(Compiled, no_cpython_wrapper=True, _nrt=False)


# Entered with the name of a stage while one of its kernels is compiled. A program that shows it puts another
# one in its place.
announced: Callable[[str], AbstractContextManager[object]] = nullcontext


@cache
def _announce_compiling() -> None:
    from numba.core import event

    class Announced(event.Listener):
        """Of a kernel on disk numba does not tell. Compiling a kernel compiles those that it calls."""

        def __init__(self) -> None:
            self._entered: list[AbstractContextManager[object]] = []
            self._collects = gc.isenabled()

        def on_start(self, compiling: event.Event) -> None:
            if not self._entered:  # what the compiler makes stays: searching it took a tenth of its time
                self._collects = gc.isenabled()
                gc.disable()
            _, ours, name = compiling.data["dispatcher"].py_func.__module__.partition("pipeline.stages.")
            # Not what it calls: each would begin the time anew after which a log says that it takes long.
            first = ours and not self._entered
            self._entered.append(announced(name.partition(".")[0]) if first else nullcontext())
            self._entered[-1].__enter__()

        def on_end(self, compiling: event.Event) -> None:
            self._entered.pop().__exit__(None, None, None)
            if not self._entered and self._collects:
                gc.enable()

    event.register("numba:compile", Announced())


@cache
def sources() -> int:
    """A hash of the modules of all stages."""
    modules = sorted(Path(__file__).parent.rglob("*.py"))
    return int.from_bytes(blake2b(b"".join(path.read_bytes() for path in modules), digest_size=7).digest())
