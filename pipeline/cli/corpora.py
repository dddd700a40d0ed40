"""corpora: lists the ready-made corpora, or what each corpus of a recipe contributes to its training."""

import argparse

from pipeline.cli.opening import add_variant, opened
from pipeline.reports import tables
from pipeline.sources.hub.catalog import ready_made
from pipeline.steps.training import plan
from trainer.system import terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe", metavar="R", help="show the corpora of this recipe: a path, or a name such as gpu"
    )
    add_variant(parser)


def run(options: argparse.Namespace) -> None:
    if options.recipe is None:
        _print_ready_made()
        return
    recipe, store = opened(options.variant, options.recipe)
    with terminal.doing("counting tokens"):
        contributions = plan.contributions(store, recipe)
    rows = [
        (one.corpus, f"{one.documents:,}", f"{one.tokens:,}", f"{one.share:.1%}", f"{one.epochs:.2f}")
        for one in contributions
    ]
    print("\n".join(tables.table("corpus,documents,tokens,share,epochs", rows)))
    print(f"training.max_tokens: {recipe.training.max_tokens:,}; held-out documents are not counted")


def _print_ready_made() -> None:
    rows = [
        (entry.name, f"{entry.documents:,}", f"{entry.bytes / 1e9:,.2f} GB", entry.card_license)
        for entry in ready_made()
    ]
    heading, *lines = tables.table("name,documents,text,license", rows)
    print(heading)
    for line, entry in zip(lines, ready_made(), strict=True):
        print(f"{line}\n    {entry.about}")
    print(
        "\nList a corpus in a recipe under `corpora`: `- NAME`, `- NAME:N` for its first N documents, or "
        "`- OWNER/NAME` for any data set on the hub."
    )
