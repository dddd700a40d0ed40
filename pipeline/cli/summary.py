"""What there is to know about the newest model."""

import argparse


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    summary = commands.add_parser(
        "summary", help="where the model is, how good it is, two samples, how to open the UI"
    )
    summary.set_defaults(run=_summary)


def _summary(options: argparse.Namespace) -> None:
    from pipeline.reports.summary import summary
    from pipeline.store.versions import default_store

    print(summary(default_store()))
