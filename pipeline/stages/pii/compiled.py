"""How the parts of the pass are compiled: without entries from Python and C, which nothing calls; a sixth less of the first run's compilation."""

from numba import njit

part = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
