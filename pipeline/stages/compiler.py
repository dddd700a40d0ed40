"""How numba compiles kernels here: in less than half of its usual time.

- No machine code is made of inner functions. numba would optimise each one and emit its machine code, then do
  both again with each function that calls it.
- Nothing is looked for that kernels do not have: closures, arithmetic on complete arrays.
- What an inlined function calls is not inlined, unless it is marked so itself.
- A constant argument makes no version of its own.
- What a built-in function means for types of arguments is looked up once.
- Garbage collection waits.

A kernel that is on disk is loaded without the rest of the compiler, and without SciPy, which that imports.

Written against the internals of one release of numba; with others `Compiled` does without this.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numba import _dynfunc
from numba.core.caching import FunctionCache
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys
from numba.core.typed_passes import InlineOverloads, NativeLowering, NopythonRewrites
from numba.core.types import Function
from numba.core.types.misc import unliteral
from numba.core.typing.templates import Signature
from numba.core.untyped_passes import InlineClosureLikes, InlineInlinables

_Key = tuple[Function, Any, tuple[Any, ...], tuple[tuple[str, Any], ...]]
_SIGNATURES: dict[Flags, dict[_Key, tuple[Function, Signature]]] = {}
_builtin: Any = Function
_resolve = Function.get_call_type
_SKIPPED = (InlineClosureLikes, InlineInlinables, InlineOverloads, NopythonRewrites)


def kernel(function: Callable[..., Any]) -> CPUDispatcher:
    """A function for Python to call. What was compiled is kept beside its source."""
    # Other threads go on: one hands tasks to worker processes.
    dispatcher = _dispatcher(function, _KernelCompiler, nogil=True)
    dispatcher._cache = _KernelCache(function)
    return dispatcher


def inner(function: Callable[..., Any]) -> CPUDispatcher:
    """A function for kernels to call. Python must not call it."""
    return _dispatcher(function, _InnerCompiler, no_cpython_wrapper=True)


def borrowing(function: Callable[..., Any]) -> CPUDispatcher:
    """An inner function that neither makes nor returns an array, and so counts no references."""
    return _dispatcher(function, _InnerCompiler, no_cpython_wrapper=True, _nrt=False)


def inlined(function: Callable[..., Any]) -> CPUDispatcher:
    """A borrowing function that becomes part of its callers."""
    return _dispatcher(function, _InlinedCompiler, no_cpython_wrapper=True, _nrt=False)


def _dispatcher(function: Callable[..., Any], compiler: type[CompilerBase], **options: Any) -> CPUDispatcher:
    return _Dispatcher(
        function,
        targetoptions={"nopython": True, "no_cfunc_wrapper": True, **options},
        pipeline_class=compiler,
    )


class _Dispatcher(CPUDispatcher):
    def get_call_template(self, args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        return super().get_call_template(tuple(map(unliteral, args)), kws)

    def _compilation_chain_init_hook(self) -> None:
        """Imports no extension of numba: kernels take arrays and numbers only."""


class _KernelCache(FunctionCache):
    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """As numba's, which first fills its tables for the compiler. Machine code needs the runtime only."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class _InnerLibrary(JITCodeLibrary):
    """The intermediate code of one inner function."""

    def finalize(self) -> None:
        for library in self._linking_libraries:
            self._reload_init.update(library._reload_init)
        self._finalize_dynamic_globals()
        self._finalized = True


class _KernelLibrary(JITCodeLibrary):
    """A kernel with all that it calls, each linked once."""

    def finalize(self) -> None:
        found: dict[CodeLibrary, None] = {}
        for library in self._linking_libraries:
            _collect(library, found)
        # Linking drops what nothing calls so far, so callers come first.
        self._linking_libraries[:] = reversed(found)
        super().finalize()

    def _optimize_final_module(self) -> None:
        # No other library calls these, so arguments that they do not read need not be passed.
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
        super()._optimize_final_module()


def _remembering(flags: Flags) -> Callable[..., Signature]:
    """numba's `Function.get_call_type`, which remembers its results under these flags.

    For each addition numba tries a dozen templates, when it infers types and again when it lowers.
    """
    signatures = _SIGNATURES.setdefault(flags.copy(), {})

    def get_call_type(
        function: Function, context: Any, args: Sequence[Any], kws: Mapping[str, Any]
    ) -> Signature:
        key = function, context, tuple(args), tuple(kws.items())
        known = signatures.get(key)
        # A function keeps what implements its signatures, which one that is merely equal does not have.
        if known is None or known[0] is not function:
            known = signatures[key] = function, _resolve(function, context, key[2], kws)
        return known[1]

    return get_call_type


def _collect(library: CodeLibrary, found: dict[CodeLibrary, None]) -> None:
    """Adds the library after all that it calls."""
    if library in found:
        return
    if isinstance(library, _InnerLibrary):
        for called in library._linking_libraries:
            _collect(called, found)
    found[library] = None


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(NativeLowering):
    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        changed = super().run_pass(state)
        state.library.finalize()
        lowered = state.cr
        # By this object numba finds the code when it compiles a caller.
        entry = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), state.func_id.func_name, "", 0, lowered.env, ()
        )
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state.cr = lowered._replace(cfunc=entry)
        return changed


@register_pass(mutates_CFG=True, analysis_only=False)
class _InlinedLowering(_InnerLowering):
    _name = "inlined_lowering"

    def run_pass(self, state: Any) -> bool:
        # Not earlier: what it calls is compiled with the same flags.
        state.flags.forceinline = True
        return super().run_pass(state)


class _KernelCompiler(CompilerBase):
    lowering: type[NativeLowering] = _KernelLowering

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        # Compiling fills memory with objects that stay. Looking through them again and again takes a fifth of
        # the time.
        enabled, resolve = gc.isenabled(), _builtin.get_call_type
        gc.disable()
        _builtin.get_call_type = _remembering(self.state.flags)
        try:
            return super().compile_extra(func)
        finally:
            _builtin.get_call_type = resolve
            if enabled:
                gc.enable()

    def define_pipelines(self) -> list[PassManager]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (self.lowering if step is NativeLowering else step, description)
            for step, description in manager.passes
            if step not in _SKIPPED
        ]
        manager.finalize()
        return [manager]


class _InnerCompiler(_KernelCompiler):
    lowering = _InnerLowering


class _InlinedCompiler(_KernelCompiler):
    lowering = _InlinedLowering
