"""Paths as people write them, and where the store and Dagster's home are."""

import os
import re
from contextlib import suppress
from pathlib import Path

from trainer.system.errors import TrainerError

STORE_VARIABLE = "GROUNDWORK_STORE"
# Dagster writes the path of a database into a URL as it is, in which this means something else.
IN_A_URL = re.compile(r"\?|%[0-9A-Fa-f]{2}")


def at_home(path: str | Path) -> Path:
    """A path with the home directory that `~` or `~name` at its beginning stands for. Where nobody has this
    name, the path stays as it is, since a file can be called so: Word's `~$report.docx`.
    """
    with suppress(RuntimeError):
        return Path(path).expanduser()
    return Path(path)


def dagster_home() -> Path:
    """The folder of DAGSTER_HOME, else that of the checkout. Raises TrainerError for one that Dagster would
    refuse, since what is looked for there would seem not to have been made.
    """
    named = os.environ.get("DAGSTER_HOME")
    home = at_home(named) if named else Path(__file__).parents[2] / "dagster_home"  # as Dagster reads it
    if odd := IN_A_URL.search(str(home)):
        why = f"no folder with {odd[0]!r} in its path can hold Dagster's databases: name another"
        raise TrainerError(f"DAGSTER_HOME {home}: {why}")
    if not named or (home.is_absolute() and home.is_dir()):
        return home
    why = "there is no such folder: make it" if home.is_absolute() else "is no full path: write it from /"
    raise TrainerError(f"DAGSTER_HOME {named}: {why}, or unset DAGSTER_HOME for the one of this checkout")


def check_home() -> None:
    """Raises TrainerError if Dagster cannot keep its databases in its home."""
    if not os.access(home := dagster_home(), os.W_OK | os.X_OK):
        what = "may not be written to: change who may write there, or name another folder"
        raise TrainerError(f"DAGSTER_HOME {home}: {what}")


def store_place(address: str | None = None) -> str:
    """Where the store with the runs is: GROUNDWORK_STORE, a directory or the address of a bucket, else
    `address`, else `store` in Dagster's home. A directory is absolute; only shells replace `~` in variables.
    """
    place = os.environ.get(STORE_VARIABLE) or address or str(dagster_home() / "store")
    return place if "://" in place else str(at_home(place).absolute())
