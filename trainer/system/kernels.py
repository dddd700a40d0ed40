"""Where numba keeps the kernels that it has compiled."""

import os
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


@cache
def find_place() -> None:
    """Names a folder for temporary files to numba, also of the processes that are started, where it may write
    neither beside the code nor in the home directory, as in a container for any user: numba would raise.
    """
    from numba import config
    from numba.core.caching import FunctionCache

    try:
        FunctionCache(_own_folder)
    except RuntimeError:
        config.CACHE_DIR = os.environ[VARIABLE] = _own_folder()


def _own_folder() -> str:
    """The same for every process of a user. What somebody else could put there would be run."""
    folder = Path(tempfile.gettempdir(), f"groundwork-kernels-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return str(folder)
    return tempfile.mkdtemp(prefix=f"{folder.name}-")
