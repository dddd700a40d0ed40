"""How kernels are compiled: once per machine, and no more than is called. Nothing is passed to C, so nothing has an entry for it."""

from numba import njit

# Called from Python.
kernel = njit(cache=True, no_cfunc_wrapper=True)
# Called from kernels only: without an entry for Python, the first run compiles a fifth faster.
inner = njit(cache=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)
# As `inner`, for kernels that keep all of their parts compiled with them.
part = njit(no_cfunc_wrapper=True, no_cpython_wrapper=True)
