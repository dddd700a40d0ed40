"""inspect-shards: counts what token shards contain, shows their first documents, or checks for damage."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from pipeline.cli.printable import printable
from pipeline.cli.variant_option import add_variant, recipe_of
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS

if TYPE_CHECKING:
    from pipeline.recipe.recipe import Recipe
    from pipeline.steps.tokens.shard_sets import ShardSet, Vocabulary

SHOWN_TOKENS = 256  # of one document


class ShardsError(PipelineError):
    """The shards do not exist or are damaged."""


HELP = "Count the documents and tokens of token shards, show the first documents, or check for damage."


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
    parser.add_argument(
        "--tokenizer",
        metavar="T",
        type=Path,
        help="a tokenizer.json or its directory; default: the tokenizer in use, or the one next to PATH",
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.steps.tokens.shard_sets import vocabulary
    from trainer.data.shards import ShardError

    if options.documents < 0:
        raise ShardsError(f"--documents {options.documents}: must be at least 0")
    splits = [options.split] if options.split else SPLITS
    sets, known = _shard_sets(options.what, splits, recipe_of(options))
    if options.tokenizer:
        known = vocabulary(options.tokenizer)
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
        problems = f"{total} problem{'s' if total > 1 else ''}"
        raise ShardsError(f"{problems}, listed above: the shards are damaged, make them again")


def _shard_sets(
    what: str | None, splits: Sequence[str], recipe: "Recipe"
) -> "tuple[list[ShardSet], Vocabulary | None]":
    """The shards of a corpus, of a path, or of all corpora, and their tokenizer. A corpus in the store takes
    precedence over a path of the same name.
    """
    from pipeline.steps.recipe_versions import store_of
    from pipeline.steps.tokens.shard_sets import in_place, stored, vocabulary, vocabulary_beside

    path = Path(what) if what is not None else None
    if path and what not in recipe.corpus_names:
        if not path.exists() and not Path(f"{path}.idx").exists():
            known = ", ".join(recipe.corpus_names)
            raise ShardsError(f"{path}: neither an existing path nor a corpus of the recipe ({known})")
        return in_place(path, splits), vocabulary_beside(path)
    store = store_of(recipe)
    corpora = [what] if what else recipe.corpus_names
    versions = [store.current(keys.token_shards(corpus)) for corpus in corpora]
    sets = [stored(version, split) for version in versions for split in splits]
    return [shards for shards in sets if shards.prefixes], vocabulary(
        store.current(keys.TOKENIZER).directory()
    )


def _verify(shards: "ShardSet", known: "Vocabulary | None") -> int:
    """Prints every problem, or what was checked if there is none. Returns the number of problems."""
    from pipeline.steps.tokens.shard_sets import problems

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
            print("  not checked: ids, which needs --tokenizer")
    return damage


def _describe(shards: "ShardSet", known: "Vocabulary | None", documents: int) -> None:
    from trainer.data.shards import TokenStream

    stream = TokenStream(shards.prefixes)
    types = "/".join(sorted({shard.dtype.name for shard in stream.shards}))
    rows = [
        ("shards", f"{len(stream.shards):,}"),
        ("documents", f"{sum(shard.num_documents for shard in stream.shards):,}"),
        ("tokens", f"{stream.num_tokens:,} {types}"),
    ]
    if shards.text_bytes:
        rows.append(("bytes per token", f"{shards.text_bytes / max(stream.num_tokens, 1):.3f}"))
    for name, value in rows:
        print(f"  {name:<22}{value}")
    for number, text in _first_documents(shards, known, documents):
        print(f"\n  document {number}\n{text}")


def _first_documents(
    shards: "ShardSet", known: "Vocabulary | None", wanted: int
) -> Iterator[tuple[int, str]]:
    """The beginnings of the first documents, decoded, or as ids if there is no tokenizer."""
    from trainer.data.shards import Shard

    number = 0
    for shard in map(Shard, shards.prefixes):
        for index in range(min(shard.num_documents, wanted - number)):
            tokens = shard.document(index)
            ids = tokens[:SHOWN_TOKENS].tolist()
            shown = printable(known.text(ids) if known else " ".join(map(str, ids)))
            rest = (
                f"\n    ... {len(tokens) - SHOWN_TOKENS:,} more tokens" if len(tokens) > SHOWN_TOKENS else ""
            )
            yield number, shown + rest
            number += 1
