"""verify: looks for damage in the store."""

import argparse

HELP = "Look for damaged files in the store: what was made from them, and the command that mends them."
SHOWN = 12  # of what was made from a damaged version


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deep",
        action="store_true",
        help="read every file and compare its hash; without it, only manifests, sizes, and files whose time "
        "has changed",
    )


def run(options: argparse.Namespace) -> None:
    from tqdm import tqdm

    from pipeline.recipe.recipe import stored_at
    from pipeline.steps.lineage.verification import VerificationError, stored, verify
    from pipeline.store.store import default_store

    store = default_store(stored_at())
    places = tqdm(stored(store), desc="verifying", unit="version", disable=None, leave=False)
    found = verify(store, places, options.deep)
    for damaged in found.damaged:
        print(damaged.place)
        for damage in damaged.damage:
            print(f"  DAMAGED  {damage}")
        for made in damaged.made_from_it[:SHOWN]:
            print(f"  made from it  {made}")
        if len(damaged.made_from_it) > SHOWN:
            print(f"  made from it  and {len(damaged.made_from_it) - SHOWN} more")
        print(f"  to mend it    {damaged.mend}\n")
    if found.damaged:
        raise VerificationError(f"{found}: listed above, with what mends each")
    print(found)
