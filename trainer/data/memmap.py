"""Maps files as read-only arrays without keeping a file descriptor, as the standard library's `mmap` does: a
corpus may have 10,000 shards.
"""

import ctypes
import faulthandler
import mmap
import os
import signal
import weakref
from pathlib import Path

import numpy as np

from trainer.system.errors import USER_ERROR

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
_LIBC.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]

_mapped: dict[int, tuple[Path, int]] = {}  # what is mapped now, by address: the file and its size


def map_file(path: Path, dtype: np.dtype) -> np.ndarray:
    """Maps a file as one array, until its last view is deleted. Raises OSError if that fails."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if not size:  # nothing to map
            return np.zeros(0, dtype)
        address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    memory = (ctypes.c_ubyte * size).from_address(address)
    _mapped[address] = path, size
    weakref.finalize(memory, _unmap, address, size)
    array = np.frombuffer(memoryview(memory), dtype)
    array.flags.writeable = False
    return array


def _unmap(address: int, size: int) -> None:
    del _mapped[address]
    _LIBC.munmap(address, size)


def explain_cut_files() -> None:
    """From now on, who reads beyond the new end of a file that was cut while it is mapped ends the process
    with one sentence and USER_ERROR. By default the kernel kills it without a word.
    """
    _LIBC.signal(signal.SIGBUS, _say_which_file_was_cut)


@_HANDLER
def _say_which_file_was_cut(number: int) -> None:
    """Runs in the thread that reads: numpy was copying, so nothing of Python's is half done."""
    for path, size in list(_mapped.values()):
        now = path.stat().st_size if path.exists() else size
        if now < size:
            said = (
                f"trainer: {path}: {now} bytes, but {size} when the run began; the file was cut meanwhile. "
            )
            os.write(2, f"{said}Restore it and run again to resume\n".encode())
            os._exit(USER_ERROR)
    faulthandler.dump_traceback()
    _LIBC.signal(number, None)  # the default: the read is repeated, and ends the process
