"""export: writes the kept documents, their token shards, or the model, for other programs."""

import argparse
from pathlib import Path

from tqdm import tqdm

from pipeline.cli.variant_option import add_variant, recipe_of
from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS

PARQUET, MEGATRON, GGUF = "parquet", "megatron", "gguf"
# How to open each format: printed after the export.
READERS = {
    PARQUET: 'datasets.load_dataset("{out}"), or load_dataset("{out}", "<corpus>") for one corpus',
    MEGATRON: "Megatron-LM, NeMo or GPT-NeoX, whose data paths are file paths without .bin. The files may be "
    "links into the store: do not modify them",
    GGUF: "llama.cpp and what is built on it; `llama-quantize` makes a smaller file of {out}/*.gguf",
}


class UnknownCorpusError(PipelineError):
    """The recipe has no such corpus."""


class UnknownFormatError(PipelineError):
    """`export` does not write this format."""


HELP = "Export the kept documents as Parquet, the token shards for Megatron, or the model for llama.cpp."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        metavar="F",
        required=True,
        help="parquet: the kept documents; megatron: the token shards; gguf: the exported model. "
        "For datatrove, llm.c and nanoGPT see examples/other_token_formats.py",
    )
    parser.add_argument(
        "-o", "--out", metavar="OUT", type=Path, required=True, help="the directory to create"
    )
    add_variant(parser)
    parser.add_argument("--corpus", metavar="C", nargs="+", help="export these corpora only")
    parser.add_argument("--split", choices=SPLITS, help="export this split only")


def run(options: argparse.Namespace) -> None:
    from pipeline.steps.export.documents import export_documents
    from pipeline.steps.export.gguf import export_gguf
    from pipeline.steps.export.tokens import export_tokens
    from pipeline.steps.recipe_versions import store_of

    if options.format not in READERS:
        raise UnknownFormatError(f"--format: unknown {options.format!r}; choose from {', '.join(READERS)}")
    recipe = recipe_of(options)
    store = store_of(recipe)
    wanted = options.corpus or recipe.corpus_names
    for corpus in wanted:
        if corpus not in recipe.corpus_names:
            known = ", ".join(recipe.corpus_names)
            raise UnknownCorpusError(f"--corpus: unknown corpus {corpus!r}; choose from {known}")
    corpora = [corpus for corpus in recipe.corpus_names if corpus in wanted]
    splits = [options.split] if options.split else SPLITS
    unit = " tokens" if options.format == MEGATRON else "B"
    if options.format == GGUF and (options.corpus or options.split):
        raise UnknownFormatError("--format gguf exports a model: leave out --corpus and --split")
    with tqdm(desc="export", unit=unit, unit_scale=True, disable=None) as bar:
        if options.format == PARQUET:
            held_out = recipe.shards.validation_fraction
            counts = export_documents(store, corpora, splits, held_out, options.out, bar.update)
        elif options.format == GGUF:
            counts = export_gguf(store, options.out, bar.update)
        else:
            counts = export_tokens(store, corpora, splits, options.out, bar.update)
    for name, number in counts.items():
        print(f"{name.replace('_', ' '):<32}{number:>14,}")
    print(f"\nwritten: {options.out}\nopen with {READERS[options.format].format(out=options.out)}")
