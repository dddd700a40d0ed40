"""summary: what there is to know about the newest model."""

import argparse

HELP = "Show where the newest model is, how good it is, two samples, and how to open the UI."


def add_arguments(_: argparse.ArgumentParser) -> None:
    """There are none."""


def run(_: argparse.Namespace) -> None:
    from pipeline.reports.summary import summary
    from pipeline.store.versions import default_store

    print(summary(default_store()))
