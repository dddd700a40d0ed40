"""corpora: lists the ready-made corpora, or what each corpus of a recipe contributes to its training."""

import argparse

from pipeline.cli.variant_option import add_variant

HELP = "List the ready-made corpora, or what each corpus of a recipe contributes to its training."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe", metavar="R", help="show the corpora of this recipe: a path, or a name such as gpu"
    )
    add_variant(parser)


def run(options: argparse.Namespace) -> None:
    if options.recipe is None:
        _ready_made()
    else:
        _contributions(options.recipe, options.variant)


def _ready_made() -> None:
    from pipeline.sources.hub.catalogue import ready_made

    print(f"{'name':<24}{'documents':>14}{'text':>12}  licence")
    for entry in ready_made():
        print(f"{entry.name:<24}{entry.documents:>14,}{entry.bytes / 1e9:>9,.2f} GB  {entry.licence}")
        print(f"    {entry.about}")
    print(
        "\nList a corpus in a recipe under `corpora`: `- NAME`, `- NAME:N` for its first N documents, or "
        "`- OWNER/NAME` for any data set on the Hub."
    )


def _contributions(name: str, variant: str | None) -> None:
    from pipeline.recipe import variants
    from pipeline.recipe.recipe import BASE, recipe_path
    from pipeline.steps.recipe_versions import store_of
    from pipeline.steps.training import plan

    recipe = variants.load(recipe_path(name), variant or BASE)
    rows = plan.contributions(store_of(recipe), recipe)
    print(f"{'corpus':<28}{'documents':>12}{'tokens':>16}{'share':>9}{'epochs':>9}")
    for row in rows:
        print(f"{row.corpus:<28}{row.documents:>12,}{row.tokens:>16,}{row.share:>9.1%}{row.epochs:>9.2f}")
    print(f"training.max_tokens: {recipe.training.max_tokens:,}; held-out documents are not counted")
