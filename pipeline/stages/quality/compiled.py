"""How the kernels are compiled: `kernel` marks what Python calls, kept in numba's disk cache; `part` marks what only kernels call.

A part has no wrapper for Python, which takes a fifth off the first run's compilation. The cache watches a kernel's own file only: after changing
a part in another file, delete the kernels' `__pycache__`.
"""

from numba import njit

kernel = njit(cache=True)
part = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
