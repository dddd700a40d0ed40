"""inspect-shards: counts what token shards contain, shows their first documents, or checks for damage."""

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from pipeline.cli.opening import UsageError, add_variant, opened
from pipeline.reports import tables
from pipeline.steps.tokens.shard_sets import (
    ShardSet,
    Vocabulary,
    in_place,
    problems,
    stored,
    vocabulary,
    vocabulary_beside,
)
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS
from trainer.data.shards import Shard, ShardError

SHOWN_TOKENS = 256  # of one document


class ShardsError(PipelineError):
    """The shards are damaged."""


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
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read everything, and check hashes, index, ids, and the first and last token of each document",
    )


def run(options: argparse.Namespace) -> None:
    if options.documents < 0:
        raise UsageError(f"--documents {options.documents}: must be at least 0")
    splits = [options.split] if options.split else SPLITS
    sets, known = _shard_sets(options.what, splits, options.variant)
    total = 0
    for shards in sets:
        print(shards.name)
        damage = _verify(shards, known) if options.verify else 0
        total += damage
        if not damage:
            try:
                _describe(shards, known, options.documents)
            except ShardError as error:
                raise ShardsError(f"{error}; --verify lists every problem") from error
        print()
    if total:
        found = f"{total} problem{'s' if total > 1 else ''}"
        raise ShardsError(f"{found}, listed above: the shards are damaged, make them again")


def _shard_sets(
    what: str | None, splits: Sequence[str], variant: str | None
) -> tuple[list[ShardSet], Vocabulary | None]:
    """The shards of a corpus, of a path, or of all corpora, and their tokenizer. A corpus in the store takes
    precedence over a path of the same name.
    """
    recipe, store = opened(variant)
    path = Path(what) if what is not None else None
    if path and what not in recipe.corpus_names:
        if not path.exists() and not Path(f"{path}.idx").exists():
            names = ", ".join(recipe.corpus_names)
            raise UsageError(f"{path}: neither an existing path nor a corpus of the recipe ({names})")
        return in_place(path, splits), vocabulary_beside(path)
    corpora = [what] if what else recipe.corpus_names
    versions = [store.current(keys.token_shards(corpus)) for corpus in corpora]
    sets = [stored(version, split) for version in versions for split in splits]
    used = vocabulary(store.current(keys.TOKENIZER).directory())
    return [shards for shards in sets if shards.prefixes], used


def _verify(shards: ShardSet, known: Vocabulary | None) -> int:
    """Prints every problem, or what was checked if there is none. Returns the number of problems."""
    damage = 0
    for prefix in tqdm(shards.prefixes, desc="checking", unit="shard", disable=None, leave=False):
        for problem in problems(prefix, shards.sha256, known):
            print(f"  WRONG  {problem}")
            damage += 1
    if not damage:
        checks = [*(["hashes"] if shards.sha256 else []), "lengths", "offsets"]
        checks += [f"ids below {known.size:,}"] if known else []
        checks += ["first and last token of every document"] if known and known.ends else []
        print(f"  sound: {', '.join(checks)}")
        if known is None:
            print("  not checked: ids, which needs a tokenizer.json beside the shards")
    return damage


def _describe(shards: ShardSet, known: Vocabulary | None, wanted: int) -> None:
    """Prints counts, and the beginnings of the first documents: decoded, or as ids without a tokenizer."""
    opened_shards = [Shard(prefix) for prefix in shards.prefixes]
    print(f"  {'shards':<22}{len(opened_shards):,}")
    print(f"  {'documents':<22}{sum(shard.num_documents for shard in opened_shards):,}")
    print(f"  {'tokens':<22}{sum(shard.num_tokens for shard in opened_shards):,}")
    documents = (shard.document(i) for shard in opened_shards for i in range(shard.num_documents))
    for number, tokens in enumerate(islice(documents, wanted)):
        ids = tokens[:SHOWN_TOKENS].tolist()
        text = tables.printable(known.text(ids) if known else " ".join(map(str, ids)))
        print(f"\n  document {number}\n{text}")
        if len(tokens) > SHOWN_TOKENS:
            print(f"    ... {len(tokens) - SHOWN_TOKENS:,} more tokens")
