"""inspect: counts the documents that quality rejected, or shows those that quality rejected or dedup removed,
with the evidence and their text after scrubbing.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import pyarrow.compute as pc

from pipeline.cli.opening import UsageError, add_variant, check_known, opened
from pipeline.reports import tables
from pipeline.stages.quality import RULES
from pipeline.steps.corpus.filters import failed_rule
from pipeline.steps.corpus.quality import Row, reasons, rejected
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.parquet import beginnings, read_table
from pipeline.store.store import Store

DUPLICATES = ("exact", "near")
CONTAMINATED = "contaminated"
CHARACTERS = 400
AT_ONCE = 100  # duplicates whose texts are looked for in one pass over the corpora


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rule",
        metavar="RULE",
        nargs="?",
        help="show the documents of this quality rule, of a filter of your own (FILTER.error: where it "
        "raised), or of `exact`, `near` or `contaminated`; default: count the documents of every "
        "quality rule",
    )
    add_variant(parser)
    parser.add_argument("--corpus", metavar="C", help="look at this corpus only")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=10, help="how many documents to show; default: %(default)s"
    )


def run(options: argparse.Namespace) -> None:
    recipe, store = opened(options.variant)
    corpora = [options.corpus] if options.corpus is not None else recipe.corpus_names
    check_known("--corpus", corpora, recipe.corpus_names)
    rule = options.rule
    if rule is None:
        print("\n".join(tables.lines(_counted(store, corpora))))
        return
    own = [entry.name for entry in recipe.quality.filters]
    check_known("RULE", [rule], [*RULES, *own, *map(failed_rule, own), *DUPLICATES, CONTAMINATED])
    if options.limit < 1:
        raise UsageError(f"--limit {options.limit}: must be at least 1")
    if rule == CONTAMINATED:
        found = _contaminated(store, corpora)
    elif rule in DUPLICATES:
        found = _duplicates(store, rule, recipe.corpus_names, corpora)
    else:
        found = _rejected(store, rule, corpora)
    shown = list(islice(found, options.limit))
    print(
        "".join(f"{entry}\n\n" for entry in shown) or f"{rule}: no document of {', '.join(corpora)}\n", end=""
    )


def _counted(store: Store, corpora: Sequence[str]) -> list[dict[str, str]]:
    """The kept and the rejected documents by corpus and rule, with example ids to search for in
    `documents.parquet`.
    """
    return [
        {
            "corpus": corpus,
            "verdict": reason.rule or "kept",
            "documents": f"{reason.documents:,}",
            "share": f"{reason.share:.1%}",
            "examples": " ".join(reason.examples),
        }
        for corpus in corpora
        for reason in reasons(store.current(keys.quality(corpus)))
    ]


def _rejected(store: Store, rule: str, corpora: Sequence[str]) -> Iterator[str]:
    """The documents rejected by `rule`: id, signals with their thresholds, and the beginning of the text."""
    for corpus, id_, reason, text in rejected(store, rule, corpora, CHARACTERS):
        yield f"{corpus} {id_}\n{reason}\n{tables.printable(text)}"


def _contaminated(store: Store, corpora: Sequence[str]) -> Iterator[str]:
    """The documents that quote an evaluation set: id, set, quoted words, and the beginning of the text."""
    for corpus in corpora:
        hits, scrubbed = store.current(keys.contamination(corpus)), store.current(keys.scrubbed(corpus))
        for part in hits.parts:
            rows = _rows(hits, part.name, "contamination")
            texts = _texts(scrubbed, part.name, [row["id"] for row in rows])
            for row in rows:
                quoted = tables.printable(row["ngram"]).strip()
                yield (
                    f"{corpus} {row['id']}\nquotes {row['set']}: {quoted!r}, at {row['hits']} places\n"
                    f"{texts[row['id']]}"
                )


def _duplicates(store: Store, reason: str, known: Sequence[str], corpora: Sequence[str]) -> Iterator[str]:
    """The documents that dedup removed for `reason`, each followed by the document that was kept instead."""
    decisions = store.current(keys.DEDUP)
    scrubbed = {corpus: store.current(keys.scrubbed(corpus)) for corpus in known}
    for part in decisions.parts:
        if keys.decided_corpus(part.name) not in corpora:
            continue
        duplicates = _rows(decisions, part.name, "decisions", pc.field("reason") == reason)
        for start in range(0, len(duplicates), AT_ONCE):
            rows = duplicates[start : start + AT_ONCE]
            wanted = [row[name] for row in rows for name in ("id", "duplicate_of")]
            texts = {
                id_: (corpus, text)
                for corpus, version in scrubbed.items()
                for other in version.parts
                for id_, text in _texts(version, other.name, wanted).items()
            }
            yield from (_pair(row, texts) for row in rows)


def _pair(row: Row, texts: Mapping[str, tuple[str, str]]) -> str:
    gone = ("?", "(no longer in the store)")
    from_corpus, lost = texts.get(row["id"], gone)
    to_corpus, kept = texts.get(row["duplicate_of"], gone)
    return (
        f"removed {from_corpus} {row['id']}: {row['reason']}, Jaccard {row['jaccard']:.3f}\n{lost}\n"
        f"kept {to_corpus} {row['duplicate_of']}, which stands for {row['cluster']} documents\n{kept}"
    )


def _rows(version: Version, part: str, table: str, where: pc.Expression | None = None) -> list[Row]:
    return read_table(version.named(part, table), filters=where).to_pylist()


def _texts(version: Version, part: str, ids: Sequence[str]) -> dict[str, str]:
    """The beginnings of those documents of a part that have these ids."""
    found = beginnings(version.named(part, "documents"), ids, CHARACTERS)
    return {id_: tables.printable(text) for id_, text in found.items()}
