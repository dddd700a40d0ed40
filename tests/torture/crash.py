"""`python -m tests.torture.crash N SIGNAL WHOM ...` runs a command of the pipeline. At its Nth change of a
file or directory below the current one, the process (`self`) or its whole group (`group`) gets the signal.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pipeline import cli

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def main() -> int:
    left, number, whom, *command = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    below = os.fsencode(Path.cwd())

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in CHANGES and not (event == "open" and arguments[2] & WRITES):
            return
        of_folder = event != "open" and arguments[-1] != -1  # by its descriptor, as shutil.rmtree removes
        if isinstance(arguments[0], int) or not (of_folder or os.fsencode(arguments[0]).startswith(below)):
            return
        left -= 1
        if left == 0:
            os.kill(0 if whom == "group" else os.getpid(), number)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a test in the background ignores
    sys.addaudithook(hook)
    return cli.main(command)


if __name__ == "__main__":
    sys.exit(main())
