"""disk: shows what the store takes."""

import argparse
import json
from dataclasses import asdict

HELP = "Show how much disk each part of the store takes, and what names it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the table as JSON, in bytes")


def run(options: argparse.Namespace) -> None:
    from pipeline.recipe.recipe import stored_at
    from pipeline.store.cleanup import disk
    from pipeline.store.store import default_store

    store = default_store(stored_at())
    uses = disk.table(store)
    if options.json:
        print(json.dumps([asdict(use) for use in uses], indent=1))
        return
    for use in uses:
        print(f"{use.bytes / 1e6:>12,.1f} MB  {use.what:<40}  {use.named_by}")
    total = sum(use.bytes for use in uses)
    print(f"{total / 1e6:>12,.1f} MB  in {store.root}; {disk.free(store) / 1e6:,.0f} MB are free")
