"""report: writes a page on a model and its text, for somebody who has neither of them."""

import argparse
from pathlib import Path

from pipeline.cli.opening import (
    Model,
    UsageError,
    add_model,
    chosen_model,
    evaluation_of,
    opened,
    trained_by,
    whole_store,
)
from pipeline.recipe.post_training import JOBS
from pipeline.reports.regulators import GAP
from pipeline.reports.report import Page, report
from pipeline.steps.lineage.checkpoints import checkpoint
from pipeline.steps.lineage.lineage_versions import LineageVersions, titled
from pipeline.store.store import Store, StoreError
from trainer.system import terminal
from trainer.system.durable import write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        type=Path,
        default=Path("report.html"),
        help="the page to write; default: %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    if options.out.suffix != ".html":
        raise UsageError(f"-o {options.out}: the report is a page, name a .html file")
    model = chosen_model(options) if options.model is not None else None
    with terminal.doing("reading what was made, and drawing it"):
        page, why = (_of_model(model), "") if model else _of_recipe(options.variant)
    write_atomically(options.out, page.html)
    found = f"{options.out}: {len(page.html.encode()) / 1e6:.1f} MB"
    if gaps := page.html.count(GAP):
        found += f", {gaps} fields {GAP}"
    if page.missing:
        many = "sections are" if page.missing[1:] else "section is"
        found += f", {len(page.missing)} {many} not made: {', '.join(page.missing)}"
    print(found + (f"\n{why}" if why else ""))


def _of_recipe(variant: str | None) -> tuple[Page, str]:
    """The page on the recipe as it is now, and why it has no model if there is one from before."""
    recipe, store = opened(variant)
    job, why = JOBS.get(recipe.section, "pretrain"), ""
    try:
        trained_by(recipe, store, "--model {run} reports on it")
    except StoreError as error:
        why = str(error)
    return report(store, titled(recipe.name, recipe.variant), recipe.corpus_names, job), why


def _of_model(model: Model) -> Page:
    """The page on a model of this store, from the versions of its lineage."""
    if model.run is None:
        raise UsageError(f"{model.path}: no training run of this store made this model: name one that did")
    store = whole_store()
    one = checkpoint(store, str(model.run.newest_checkpoint))
    made = [model.trained, model.exported and evaluation_of(store, model)]
    versions = LineageVersions(one, filter(None, made))
    return report(Store(store.root, versions, store.files), versions.title, one.corpora, of=one)
