"""export: the clean corpora, or their token shards, for other programs."""

import argparse
from pathlib import Path

from tqdm import tqdm

from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS

PARQUET, MEGATRON = "parquet", "megatron"
MOVED = ("datatrove", "llmc", "nanogpt")
EXAMPLE = "examples/other_token_formats.py"
LINKED = "Files may be links to those in the store: do not write to them"
# What opens each format: printed when it was written.
READERS = {
    PARQUET: 'datasets.load_dataset("{out}"), or load_dataset("{out}", "<corpus>") for one of them',
    MEGATRON: f"Megatron-LM, NeMo, GPT-NeoX: a data path is the path of a file without its .bin. {LINKED}",
}


class UnknownCorpusError(PipelineError):
    """A corpus that the recipe does not have."""


class UnknownFormatError(PipelineError):
    """A format that `export` does not write."""


HELP = "Export the kept documents as Parquet, or the token shards for Megatron."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        metavar="F",
        required=True,
        help=f"parquet: the kept documents; megatron: the token shards. For {', '.join(MOVED)}: {EXAMPLE}",
    )
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="the directory to make")
    parser.add_argument("--corpus", metavar="C", nargs="+", help="export these corpora only")
    parser.add_argument("--split", choices=SPLITS, help="export this split only")


def run(options: argparse.Namespace) -> None:
    from pipeline.recipe.recipe import load_recipe, recipe_path
    from pipeline.steps.export.documents import export_documents
    from pipeline.steps.export.tokens import export_tokens
    from pipeline.store.versions import default_store

    if options.format in MOVED:
        raise UnknownFormatError(
            f"--format {options.format}: {EXAMPLE} writes this format from Megatron shards: export them with "
            f"`--format megatron -o SHARDS`, then run `python {EXAMPLE} {options.format} SHARDS OUT`"
        )
    if options.format not in READERS:
        raise UnknownFormatError(
            f"--format: there is no format {options.format!r}; there are {', '.join(READERS)}"
        )
    recipe, store = load_recipe(recipe_path()), default_store()
    for corpus in options.corpus or []:
        if corpus not in recipe.corpus_names:
            raise UnknownCorpusError(
                f"--corpus: there is no corpus {corpus!r}; there are {', '.join(recipe.corpus_names)}"
            )
    corpora = [corpus for corpus in recipe.corpus_names if corpus in (options.corpus or recipe.corpus_names)]
    splits = [options.split] if options.split else SPLITS
    parquet = options.format == PARQUET
    with tqdm(desc="export", unit="B" if parquet else " tokens", unit_scale=True, disable=None) as bar:
        if parquet:
            counts = export_documents(
                store, corpora, splits, recipe.shards.validation_fraction, options.out, bar.update
            )
        else:
            counts = export_tokens(store, corpora, splits, options.out, bar.update)
    for name, number in counts.items():
        print(f"{name.replace('_', ' '):<32}{number:>14,}")
    print(f"\nwritten: {options.out}\nopened by {READERS[options.format].format(out=options.out)}")
