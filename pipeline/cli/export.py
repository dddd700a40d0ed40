"""export: writes the kept documents, their token shards, or the model, for other programs."""

import argparse
from pathlib import Path

from pipeline.cli.opening import UsageError, add_model, check_known, chosen_model, opened
from pipeline.reports import tables
from pipeline.steps.export.documents import export_documents
from pipeline.steps.export.gguf import export_gguf
from pipeline.steps.export.tokens import export_tokens
from pipeline.store.keys import SPLITS
from trainer.system import terminal

PARQUET, MEGATRON, GGUF = "parquet", "megatron", "gguf"
# How to open each format: printed after the export.
READERS = {
    PARQUET: 'datasets.load_dataset("{out}"), or load_dataset("{out}", "<corpus>") for one corpus',
    MEGATRON: "Megatron-LM, NeMo or GPT-NeoX, whose data paths are file paths without .bin. The files may be "
    "links into the store: do not modify them",
    GGUF: "llama.cpp and what is built on it; `llama-quantize` makes a smaller file of {out}/*.gguf",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        metavar="F",
        required=True,
        help="parquet: the kept documents; megatron: the token shards; gguf: a model. "
        "For datatrove, llm.c and nanoGPT see examples/other_token_formats.py",
    )
    parser.add_argument(
        "-o", "--out", metavar="OUT", type=Path, required=True, help="the directory to create"
    )
    add_model(parser)
    parser.add_argument("--corpus", metavar="C", nargs="+", help="export these corpora only")
    parser.add_argument("--split", choices=SPLITS, help="export this split only")


def run(options: argparse.Namespace) -> None:
    check_known("--format", [options.format], READERS)
    if options.format == GGUF and (options.corpus or options.split):
        raise UsageError("--format gguf exports a model: leave out --corpus and --split")
    if options.format != GGUF and options.model:
        raise UsageError("--model names a model: give --format gguf")
    model = chosen_model(options) if options.format == GGUF else None
    recipe, store = opened(options.variant)
    check_known("--corpus", options.corpus or (), list(recipe.weights))
    corpora = [name for name in recipe.weights if name in (options.corpus or recipe.weights)]
    splits = [options.split] if options.split else SPLITS
    with terminal.doing("exporting") as bar:
        advance = bar.counter("tokens" if options.format == MEGATRON else "bytes")
        if options.format == PARQUET:
            counts = export_documents(store, recipe, corpora, splits, out=options.out, progress=advance)
        elif model:
            counts = export_gguf(model.path, model.made_from, options.out, advance)
        else:
            counts = export_tokens(store, corpora, splits, options.out, advance)
    print("\n".join(tables.counts((name.replace("_", " "), number) for name, number in counts.items())))
    print(f"\nwritten: {options.out}\nopen with {READERS[options.format].format(out=options.out)}")
