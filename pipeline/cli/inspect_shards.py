"""inspect-shards: counts what token shards contain and shows their first documents."""

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from pipeline.cli.opening import UsageError, add_variant, check_least, opened
from pipeline.reports import tables
from pipeline.steps.tokens.shard_sets import ShardSet, in_place, stored, tokenizer_beside
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS
from trainer.data.shards import Shard, ShardError

SHOWN_TOKENS = 256  # of one document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="CORPUS|PATH",
        nargs="?",
        help="a corpus, a directory with shards, or one shard; default: all corpora of the recipe",
    )
    add_variant(parser)
    parser.add_argument("--split", choices=SPLITS, help="look at this split only")
    parser.add_argument(
        "--documents",
        metavar="N",
        type=int,
        default=1,
        help="how many documents of each split to decode; default: %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    check_least("--documents", options.documents, 0)
    splits = [options.split] if options.split else SPLITS
    sets, tokenizer = _shard_sets(options.what, splits, options.variant)
    for shards in sets:
        print(shards.name)
        try:
            _describe(shards, tokenizer, options.documents)
        except ShardError as error:
            raise PipelineError(f"{error}: make these shards again") from error
        print()


def _shard_sets(
    what: str | None, splits: Sequence[str], variant: str | None
) -> tuple[list[ShardSet], Tokenizer | None]:
    """The shards of a corpus, of a path, or of all corpora, and their tokenizer. A corpus in the store takes
    precedence over a path of the same name.
    """
    recipe, store = opened(variant)
    path = Path(what) if what is not None else None
    if path and what not in recipe.corpus_names:
        if not path.exists() and not Path(f"{path}.idx").exists():
            names = ", ".join(recipe.corpus_names)
            raise UsageError(f"{path}: neither an existing path nor a corpus of the recipe ({names})")
        return in_place(path, splits), tokenizer_beside(path)
    corpora = [what] if what else recipe.corpus_names
    versions = [store.current(keys.token_shards(corpus)) for corpus in corpora]
    sets = [stored(version, split) for version in versions for split in splits]
    used = tokenizer_beside(store.current(keys.TOKENIZER).directory())
    return [shards for shards in sets if shards.prefixes], used


def _describe(shards: ShardSet, tokenizer: Tokenizer | None, wanted: int) -> None:
    """Prints counts, and the beginnings of the first documents: decoded, or as ids without a tokenizer."""
    opened_shards = [Shard(prefix) for prefix in shards.prefixes]
    print(f"  {'shards':<22}{len(opened_shards):,}")
    print(f"  {'documents':<22}{sum(shard.num_documents for shard in opened_shards):,}")
    print(f"  {'tokens':<22}{sum(shard.num_tokens for shard in opened_shards):,}")
    documents = (shard.document(i) for shard in opened_shards for i in range(shard.num_documents))
    for number, tokens in enumerate(islice(documents, wanted)):
        ids = tokens[:SHOWN_TOKENS].tolist()
        text = tokenizer.decode(ids, skip_special_tokens=False) if tokenizer else " ".join(map(str, ids))
        print(f"\n  document {number}\n{tables.printable(text)}")
        if len(tokens) > SHOWN_TOKENS:
            print(f"    ... {len(tokens) - SHOWN_TOKENS:,} more tokens")
