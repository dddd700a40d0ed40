"""gc: what the store holds that nothing needs any more."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.store.gc import Garbage


HELP = "List the stored versions that nothing uses any more, and with --delete remove them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--delete", action="store_true", help="remove them; without it, only list what that would free"
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.store import gc as garbage
    from pipeline.store.versions import default_store

    store = default_store()
    found = garbage.find(store)
    for one in found:
        print(f"{_megabytes([one])}  {one.path.relative_to(store.root)}")
    if not found:
        print("nothing to remove: every version is in use, or named by a training run")
    elif not options.delete:
        print(
            f"{sum(one.bytes for one in found) / 1e6:>12,.1f} MB  in {len(found)} versions; `python -m "
            "pipeline gc --delete` frees it"
        )
    else:
        removed = garbage.remove(store, found)
        print(f"{_megabytes(removed)}  freed")
        for busy in (one for one in found if one not in removed):
            print(f"kept, in use now: {busy.path.relative_to(store.root)}")


def _megabytes(garbage: "Sequence[Garbage]") -> str:
    return f"{sum(one.bytes for one in garbage) / 1e6:>12,.1f} MB"
