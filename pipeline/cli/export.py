"""export: the clean corpora, or their token shards, for other programs."""

import argparse
from pathlib import Path

from tqdm import tqdm

from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS

PARQUET = "parquet"
LINKED = "Files may be links to those in the store: do not write to them"
# What opens each format, said when it was written.
READERS = {
    PARQUET: 'datasets.load_dataset("{out}"), or load_dataset("{out}", "<corpus>") for one of them',
    "megatron": f"Megatron-LM, NeMo, GPT-NeoX: a data path is the path of a file without its .bin. {LINKED}",
    "datatrove": f'DatatroveFolderDataset("{{out}}/train", seq_len=2048, token_size=2), 4 for ids above '
    f"65,535. {LINKED}",
    "llmc": 'llm.c: -i "{out}/tokens_train_*.bin" -j "{out}/tokens_val_*.bin"; ids above 65,535 only by its '
    "train_llama3.py",
    "nanogpt": "nanoGPT: put this directory below its data/, name it in `dataset`; with no meta.pkl its "
    "vocabulary is 50,304",
}


class UnknownCorpusError(PipelineError):
    """A corpus that the recipe does not have."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    export = commands.add_parser(
        "export", help="the clean corpora as Parquet, or their token shards in the format of another program"
    )
    export.add_argument(
        "--format",
        choices=tuple(READERS),
        required=True,
        help="parquet: kept documents; the others: token shards",
    )
    export.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="the directory to make")
    export.add_argument("--corpus", metavar="C", nargs="+", help="these corpora only")
    export.add_argument("--split", choices=SPLITS, help="this split only")
    export.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> None:
    from pipeline.recipe.recipe import load_recipe, recipe_path
    from pipeline.steps.export.documents import export_documents
    from pipeline.steps.export.tokens import TokenFormat, export_tokens
    from pipeline.store.versions import default_store

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
            counts = export_tokens(
                store, TokenFormat(options.format), corpora, splits, options.out, bar.update
            )
    for name, number in counts.items():
        print(f"{name.replace('_', ' '):<32}{number:>14,}")
    print(f"\nwritten: {options.out}\nopened by {READERS[options.format].format(out=options.out)}")
