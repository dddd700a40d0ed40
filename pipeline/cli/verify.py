"""verify: looks for damage in the store."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.cli.opening import whole_store
from pipeline.steps.verification import stored, verify
from pipeline.store.errors import PipelineError
from trainer.system import terminal

VERSIONS_SHOWN = 12  # of those that were made from a damaged one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deep",
        action="store_true",
        help="read every file and compare its hash; without it, only manifests, sizes, and files that "
        "were never hashed in this place or whose times have changed",
    )


def run(options: argparse.Namespace) -> None:
    store = whole_store()
    with terminal.doing("verifying") as bar:
        found = verify(store, _counted(stored(store), bar), options.deep)
    for damaged in found.damaged:
        print(damaged.place)
        for damage in damaged.damage:
            print(f"  DAMAGED  {damage}")
        for made in damaged.made_from_it[:VERSIONS_SHOWN]:
            print(f"  made from it  {made}")
        if len(damaged.made_from_it) > VERSIONS_SHOWN:
            print(f"  made from it  and {len(damaged.made_from_it) - VERSIONS_SHOWN} more")
        print(f"  to repair it  {damaged.mend}\n")
    if found.damaged:
        raise PipelineError(f"{found}: listed above, with what repairs each")
    print(found)


def _counted(places: Sequence[Path], bar: terminal.Activity) -> Iterator[Path]:
    for number, place in enumerate(places):
        bar.update(number / len(places), [f"{number:,} of {len(places):,} versions"])
        yield place
