"""inspect-shards: what is in token shards, and whether they are damaged."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from pipeline.cli.printable import printable
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.keys import SPLITS

if TYPE_CHECKING:
    from pipeline.steps.tokens.shard_sets import ShardSet, Vocabulary
    from pipeline.steps.tokens.statistics import Statistics

SHOWN_TOKENS = 256  # of one document
FREQUENT = 8


class ShardsError(PipelineError):
    """Shards that do not exist or are damaged."""


HELP = "Show statistics of token shards and their first documents, decoded, or check them for damage."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="CORPUS|PATH",
        nargs="?",
        help="a corpus, a directory with shards, or one shard; default: all corpora of the recipe",
    )
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
        help="read everything, and check hashes, index, ids, and how documents begin and end",
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
        raise ShardsError(f"--documents {options.documents}: give 0 or more")
    sets, known = _found(options.what, [options.split] if options.split else SPLITS)
    if options.tokenizer:
        known = vocabulary(options.tokenizer)
    damaged = 0
    for shards in sets:
        print(shards.name)
        found = _verified(shards, known) if options.verify else 0
        damaged += found
        if not found:
            try:
                _describe(shards, known, options.documents)
            except ShardError as error:
                raise ShardsError(f"{error}; --verify lists all that is wrong") from error
        print()
    if damaged:
        raise ShardsError(
            f"{damaged} problems, named above: these shards are not what was written, make them again"
        )


def _found(what: str | None, splits: Sequence[str]) -> "tuple[list[ShardSet], Vocabulary | None]":
    """The shards that are meant, and their tokenizer. A corpus in the store comes before a path of the
    same name.
    """
    from pipeline.recipe.recipe import load_recipe, recipe_path
    from pipeline.steps.tokens.shard_sets import in_place, stored, vocabulary_beside, vocabulary_of
    from pipeline.store.versions import KEY, default_store

    store = default_store()
    stored_here = what is not None and KEY.fullmatch(what) is not None and store.has(keys.token_shards(what))
    if what is not None and not stored_here:
        if not Path(what).exists() and not Path(f"{what}.idx").exists():
            raise ShardsError(
                f"{what}: no such path, and no corpus of this name has token shards in {store.root}"
            )
        return in_place(Path(what), splits), vocabulary_beside(Path(what))
    corpora = load_recipe(recipe_path()).corpus_names if what is None else [what]
    versions = [store.current(keys.token_shards(corpus)) for corpus in corpora]
    sets = [stored(version, split) for version in versions for split in splits]
    return [shards for shards in sets if shards.prefixes], vocabulary_of(store, versions)


def _verified(shards: "ShardSet", known: "Vocabulary | None") -> int:
    """Prints what was checked, or what is wrong; returns how many things are."""
    from pipeline.steps.tokens.shard_sets import problems

    found = 0
    for prefix in tqdm(shards.prefixes, desc="checking", unit="shard", disable=None, leave=False):
        for problem in problems(prefix, shards.sha256, known):
            print(f"  WRONG  {problem}")
            found += 1
    if not found:
        checks = [*(["hashes"] if shards.sha256 else []), "lengths", "offsets"]
        checks += [f"ids below {known.size:,}"] if known else []
        checks += ["begin and end of every document"] if known and known.ends else []
        print(f"  sound: {', '.join(checks)}")
        if known is None:
            print("  not checked: ids, for which --tokenizer is needed")
    return found


def _describe(shards: "ShardSet", known: "Vocabulary | None", documents: int) -> None:
    from pipeline.steps.tokens.statistics import measure

    found = measure(shards.prefixes)
    rows = [
        ("shards", f"{found.shards:,}"),
        ("documents", f"{found.documents:,}"),
        ("tokens", f"{found.tokens:,} {found.dtype}"),
    ]
    if shards.text_bytes:
        rows.append(("bytes per token", f"{shards.text_bytes / max(found.tokens, 1):.3f}"))
    rows.append(("tokens per document", f"{found.shortest:,} to {found.longest:,}, median {found.median:,}"))
    for name, value in [*rows, *(_frequencies(found, known) if known else [])]:
        print(f"  {name:<22}{value}")
    for number, text in _first_documents(shards, known, documents):
        print(f"\n  document {number}\n{text}")


def _frequencies(found: "Statistics", known: "Vocabulary") -> list[tuple[str, str]]:
    sampled = f", in a sample of {found.sampled:,} tokens" if found.sampled < found.tokens else ""
    special = sum(
        int(found.occurrences[number]) for number in known.special_ids if number < len(found.occurrences)
    )
    order = (-found.occurrences).argsort(kind="stable")[:FREQUENT].tolist()
    frequent = ", ".join(
        f"{known.text([number])!r} {found.occurrences[number] / found.sampled:.1%}" for number in order
    )
    return [
        ("vocabulary used", f"{(found.occurrences > 0).sum():,} of {known.size:,}{sampled}"),
        ("special tokens", f"{special / found.sampled:.2%}{sampled}"),
        ("most frequent", frequent + sampled),
    ]


def _first_documents(
    shards: "ShardSet", known: "Vocabulary | None", wanted: int
) -> Iterator[tuple[int, str]]:
    """How the first documents begin, decoded, or as ids when there is no tokenizer."""
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
