"""How the kernel's parts are compiled: without wrappers for Python, which takes a fifth off the first run's compilation."""

from numba import njit

part = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
