"""restore: the texts of a corpus before `edits` cut lines out of them."""

import argparse
import sys

import orjson

from pipeline.cli.opening import UsageError, add_variant, check_known, opened
from pipeline.steps.corpus.edit import texts_before
from pipeline.store import keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", metavar="CORPUS", help="a corpus with `edits`")
    parser.add_argument("--document", metavar="ID", help="this document only; default: all of them")
    add_variant(parser)


def run(options: argparse.Namespace) -> None:
    recipe, store = opened(options.variant)
    check_known("CORPUS", [options.corpus], recipe.corpus_names)
    if not recipe.is_edited(options.corpus):
        raise UsageError(f"{options.corpus}: nothing is cut out of this corpus: it has no `edits`")
    found = False
    for id_, text in texts_before(store.current(keys.edited(options.corpus))):
        if options.document in (None, id_):
            found = True
            sys.stdout.buffer.write(orjson.dumps({"id": id_, "text": text}) + b"\n")
    if options.document and not found:
        raise UsageError(f"--document {options.document}: no such document in {options.corpus}")
