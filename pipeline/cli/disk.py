"""disk: shows what the store takes, and what of it `gc` would remove."""

import argparse
import shutil

from pipeline.cli.gc import add_keep, limits
from pipeline.cli.opening import whole_store
from pipeline.store.cleanup import gc
from trainer.system import terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_keep(parser)


def run(options: argparse.Namespace) -> None:
    store = whole_store()
    with terminal.doing("measuring each version and run"):
        uses = gc.uses(store, limits(options.keep))
    for use in uses:
        print(f"{use.bytes / 1e6:>12,.1f} MB  {use.what:<40}  {use.named_by}")
    total, free = sum(use.bytes for use in uses), shutil.disk_usage(store.root).free
    print(f"{total / 1e6:>12,.1f} MB  in {store.root}; {free / 1e6:,.0f} MB are free")
