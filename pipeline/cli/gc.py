"""gc: lists or removes the stored versions that nothing uses any more."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.store.gc import Garbage


HELP = "List the stored versions that nothing uses any more, and with --delete remove them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--delete", action="store_true", help="remove them; without it, only list them and their sizes"
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.store import gc as garbage
    from pipeline.store.versions import default_store

    store = default_store()
    unused = garbage.find(store)
    for version in unused:
        print(f"{_megabytes([version])}  {version.path.relative_to(store.root)}")
    if not unused:
        print("nothing to remove: every version is in use or recorded by a training run")
    elif not options.delete:
        print(f"{_megabytes(unused)}  in {len(unused)} versions; `python -m pipeline gc --delete` frees it")
    else:
        removed = garbage.remove(store, unused)
        print(f"{_megabytes(removed)}  freed")
        for version in unused:
            if version not in removed:
                print(f"not removed, because it is in use again: {version.path.relative_to(store.root)}")


def _megabytes(versions: "Sequence[Garbage]") -> str:
    return f"{sum(version.bytes for version in versions) / 1e6:>12,.1f} MB"
