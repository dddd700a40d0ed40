"""inspect: what quality rejected and why, in numbers; documents that it rejected or dedup removed, with the
evidence, as scrubbing left them.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.cli.printable import printable
from pipeline.store import keys, staleness
from pipeline.store.errors import PipelineError
from pipeline.store.parquet import batches
from pipeline.store.versions import Part, Store, Version

DUPLICATES = ("exact", "near")
CONTAMINATED = "contaminated"
CHARACTERS = 400


class InspectError(PipelineError):
    """A rule or a corpus that does not exist, or versions that do not belong together."""


HELP = "Count the documents that quality rejected by rule, or show those that a rule or dedup removed."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rule",
        metavar="RULE",
        nargs="?",
        help="show the documents of this quality rule, or of `exact`, `near` or `contaminated`; default: "
        "count the documents of every quality rule",
    )
    parser.add_argument("--corpus", metavar="C", help="look at this corpus only")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=10, help="how many documents to show; default: %(default)s"
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.recipe.recipe import load_recipe, recipe_path
    from pipeline.stages.quality import QualityRule
    from pipeline.store.versions import default_store

    known = load_recipe(recipe_path()).corpus_names
    if options.corpus not in (None, *known):
        raise InspectError(f"--corpus: there is no corpus {options.corpus!r}; there are {', '.join(known)}")
    store, corpora = default_store(), [options.corpus] if options.corpus else known
    if options.rule is None:
        _print_reasons(store, corpora)
        return
    rules = (*QualityRule, *DUPLICATES, CONTAMINATED)
    if options.rule not in rules:
        raise InspectError(f"there is no rule {options.rule!r}; there are {', '.join(rules)}")
    if options.limit < 1:
        raise InspectError(f"--limit {options.limit}: show at least one document")
    shown = 0
    for shown, entry in enumerate(_documents(store, options.rule, known, corpora), start=1):
        print(entry, end="\n\n")
        if shown >= options.limit:
            break
    if not shown:
        print(f"{options.rule}: no document of {', '.join(corpora)}")


def _documents(store: Store, rule: str, known: Sequence[str], corpora: Sequence[str]) -> Iterator[str]:
    if rule == CONTAMINATED:
        return _contaminated(store, corpora)
    return _duplicates(store, rule, known, corpora) if rule in DUPLICATES else _rejected(store, rule, corpora)


def _print_reasons(store: Store, corpora: Sequence[str]) -> None:
    """Kept and rejected by rule, corpus by corpus, with ids that `documents.parquet` can be searched for."""
    from pipeline.steps.corpus.quality import reasons

    print(f"{'corpus':<20} {'verdict':<26} {'documents':>12} {'share':>7}  examples")
    for corpus in corpora:
        for reason in reasons(store.current(keys.quality(corpus))):
            numbers = f"{reason.documents:>12,} {reason.share:>7.1%}"
            print(f"{corpus:<20} {reason.rule or 'kept':<26} {numbers}  {' '.join(reason.examples)}".rstrip())


def _rejected(store: Store, rule: str, corpora: Sequence[str]) -> Iterator[str]:
    """What quality rejected by `rule`: id, the signals beside their thresholds, how the text begins."""
    table, names = (
        ("languages", ["language", "language_confidence"])
        if rule == "language"
        else ("signals", [rule.partition("_")[2]])
    )
    thresholds = ["languages", "min_language_confidence"] if rule == "language" else [rule]
    for corpus in corpora:
        verdicts, scrubbed = store.current(keys.quality(corpus)), store.current(keys.scrubbed(corpus))
        if rule == "language" and verdicts.manifest["params"].get("languages") is None:
            continue  # never detected
        signals = store.current(keys.of_corpus(corpus, table))
        for version, source in ((verdicts, signals), (signals, scrubbed)):
            if version.manifest["inputs"].get(source.key) != source.data_version:
                raise InspectError(
                    f"{verdicts.key} was made from an earlier {source.key}: materialize {verdicts.key} first"
                )
        params = ", ".join(f"{name} = {_value(verdicts.manifest['params'][name])}" for name in thresholds)
        for part in verdicts.parts:
            ids = _where(verdicts, part, "verdicts", "rule", rule).column("id")
            if len(ids):
                measured = _rows(signals, _same(signals, part), table, names, ids)
                texts = _texts(scrubbed, _same(scrubbed, part), ids)
                for row in ids.to_pylist():
                    yield f"{corpus} {row}\n{measured[row]}, {params}\n{texts[row]}"


def _contaminated(store: Store, corpora: Sequence[str]) -> Iterator[str]:
    """What quotes an evaluation set: id, the set and the words, how the text begins."""
    for corpus in corpora:
        hits, scrubbed = store.current(keys.contamination(corpus)), store.current(keys.scrubbed(corpus))
        staleness.check({version.key: version for version in (hits, scrubbed)})
        for part in hits.parts:
            found = pq.read_table(hits.file(part, "contamination"))
            texts = _texts(scrubbed, _same(scrubbed, part), found.column("id"))
            for row in found.to_pylist():
                yield (
                    f"{corpus} {row['id']}\nquotes {row['set']}: {printable(row['ngram']).strip()!r}, at "
                    f"{row['hits']} places\n{texts[row['id']]}"
                )


def _duplicates(store: Store, reason: str, known: Sequence[str], corpora: Sequence[str]) -> Iterator[str]:
    """What dedup removed for `reason`, and below it the document that stayed in its place."""
    decisions = store.current(keys.DEDUP)
    scrubbed = {corpus: store.current(keys.scrubbed(corpus)) for corpus in known}
    for corpus in corpora:
        for part in decisions.parts:
            if keys.decided_corpus(part.name) != corpus:
                continue
            removed = _where(decisions, part, "decisions", "reason", reason)
            for start in range(0, removed.num_rows, 100):
                rows = removed.slice(start, 100)
                wanted = pc.unique(
                    pa.chunked_array([*rows.column("id").chunks, *rows.column("duplicate_of").chunks])
                )
                texts = {
                    name: (home, text)
                    for home, version in scrubbed.items()
                    for name, text in _anywhere(version, wanted)
                }
                for row in rows.to_pylist():
                    yield _pair(row, texts)


def _pair(row: dict[str, Any], texts: dict[str, tuple[str, str]]) -> str:
    gone = ("?", "(no longer in the store)")
    (from_corpus, removed), (to_corpus, kept) = (
        texts.get(row["id"], gone),
        texts.get(row["duplicate_of"], gone),
    )
    evidence = f"removed {from_corpus} {row['id']}: {row['reason']}, Jaccard {row['jaccard']:.3f}"
    return (
        f"{evidence}\n{removed}\nkept {to_corpus} {row['duplicate_of']}, which stands for "
        f"{row['cluster']} documents\n{kept}"
    )


def _same(version: Version, part: Part) -> Part:
    return next(other for other in version.parts if other.name == part.name)


def _where(version: Version, part: Part, table: str, column: str, value: str) -> pa.Table:
    return pq.read_table(version.file(part, table), filters=pc.field(column) == value)


def _rows(version: Version, part: Part, table: str, names: list[str], ids: pa.ChunkedArray) -> dict[str, str]:
    """These columns of the rows with these ids, as `name = value`, by id."""
    found = pq.read_table(
        version.file(part, table), columns=["id", *names], filters=pc.field("id").isin(ids.combine_chunks())
    )
    return {
        row["id"]: ", ".join(f"{name} = {_value(row[name])}" for name in names) for row in found.to_pylist()
    }


def _texts(version: Version, part: Part, ids: pa.Array | pa.ChunkedArray) -> dict[str, str]:
    """How the documents of a part with these ids begin."""
    texts: dict[str, str] = {}
    for batch in batches(version.file(part, "documents"), ["id", "text"]):
        found = batch.filter(pc.is_in(batch.column("id"), value_set=ids))
        beginnings = pc.utf8_slice_codeunits(found.column("text"), 0, CHARACTERS)
        texts |= {
            name: printable(text)
            for name, text in zip(found.column("id").to_pylist(), beginnings.to_pylist(), strict=True)
        }
    return texts


def _anywhere(version: Version, ids: pa.Array) -> Iterator[tuple[str, str]]:
    for part in version.parts:
        there = pq.read_table(version.file(part, "documents"), columns=["id"]).column("id")
        if pc.any(pc.is_in(there, value_set=ids)).as_py():
            yield from _texts(version, part, ids).items()


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
