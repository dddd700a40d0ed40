"""inspect: counts the documents that quality rejected, or shows those that quality rejected or dedup removed,
with the evidence and their text after scrubbing.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.cli.printable import printable
from pipeline.cli.variant_option import add_variant, recipe_of
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import batches, read_table
from pipeline.store.store import Store

DUPLICATES = ("exact", "near")
CONTAMINATED = "contaminated"
CHARACTERS = 400
NOT_SIGNALS = ("id", "failed", "keep", "reason")  # the other columns in the table of a filter


class InspectError(PipelineError):
    """The rule or the corpus does not exist."""


HELP = "Count the documents that quality rejected by rule, or show those that a rule or dedup removed."


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
    from pipeline.stages.quality import RULES
    from pipeline.steps.corpus.filters import failed_rule
    from pipeline.steps.recipe_versions import store_of

    recipe = recipe_of(options)
    known, own = recipe.corpus_names, [entry.name for entry in recipe.quality.filters]
    if options.corpus not in (None, *known):
        raise InspectError(f"--corpus: unknown corpus {options.corpus!r}; choose from {', '.join(known)}")
    store, corpora = store_of(recipe), [options.corpus] if options.corpus else known
    if options.rule is None:
        _print_reasons(store, corpora)
        return
    rules = (*RULES, *own, *map(failed_rule, own), *DUPLICATES, CONTAMINATED)
    if options.rule not in rules:
        raise InspectError(f"unknown rule {options.rule!r}; choose from {', '.join(rules)}")
    if options.limit < 1:
        raise InspectError(f"--limit {options.limit}: must be at least 1")
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
    """Prints the kept and the rejected documents by corpus and rule, with example ids to search for in
    `documents.parquet`.
    """
    from pipeline.steps.corpus.quality import reasons

    print(f"{'corpus':<20} {'verdict':<26} {'documents':>12} {'share':>7}  examples")
    for corpus in corpora:
        for reason in reasons(store.current(keys.quality(corpus))):
            numbers = f"{reason.documents:>12,} {reason.share:>7.1%}"
            print(f"{corpus:<20} {reason.rule or 'kept':<26} {numbers}  {' '.join(reason.examples)}".rstrip())


def _rejected(store: Store, rule: str, corpora: Sequence[str]) -> Iterator[str]:
    """The documents rejected by `rule`: id, signals with their thresholds, and the beginning of the text."""
    for corpus in corpora:
        verdicts, scrubbed = store.current(keys.quality(corpus)), store.current(keys.scrubbed(corpus))
        evidence = _evidence(rule, verdicts.manifest["params"])
        if evidence is None:
            continue
        measured = store.current(keys.of_corpus(corpus, evidence.stage))
        for part in verdicts.parts:
            rows = _where(verdicts, part, "verdicts", "rule", rule)
            if rows.num_rows:
                ids = rows.column("id")
                if evidence.failed:
                    shown = _failures(evidence.name, ids, (measured, _same(measured, part)), (verdicts, part))
                else:
                    signals = _rows(measured, _same(measured, part), evidence.table, evidence.columns, ids)
                    shown = {
                        row["id"]: ", ".join(
                            filter(None, (row.get("reason"), signals[row["id"]], evidence.limits))
                        )
                        for row in rows.to_pylist()
                    }
                texts = _texts(scrubbed, _same(scrubbed, part), ids)
                for row in ids.to_pylist():
                    yield f"{corpus} {row}\n{shown[row]}\n{texts[row]}"


class _Evidence(NamedTuple):
    """Where the signals of a rule are stored: the columns of a table (None: every signal); and the limits
    that they are compared with.
    """

    name: str
    stage: str
    table: str
    columns: list[str] | None
    limits: str
    failed: bool = False


def _evidence(rule: str, params: Mapping[str, Any]) -> _Evidence | None:
    """The evidence for a rule. None if verdicts with these `params` do not use the rule."""
    name, _, error = rule.partition(".")
    for own in params.get("filters", ()):
        if own["name"] == name:
            return _Evidence(
                name, f"{keys.FILTERS}/{name}", "signals", None, _named(own["params"]), bool(error)
            )
    if rule == "language":
        if params.get("languages") is None:
            return None  # never detected
        limits = _named({name: params[name] for name in ("languages", "min_language_confidence")})
        return _Evidence(rule, "languages", "languages", ["language", "language_confidence"], limits)
    if rule not in params:
        return None  # a filter that was added to the recipe later
    return _Evidence(rule, "signals", "signals", [rule.partition("_")[2]], _named({rule: params[rule]}))


def _failures(name: str, ids: pa.ChunkedArray, *places: tuple[Version, Part]) -> dict[str, str]:
    """What a filter's code raised on these documents, while it measured or while it judged."""
    from pipeline.steps.corpus.failures import described

    rows = [
        row
        for version, part in places
        for row in read_table(version.file(part, "failures"), filters=pc.field("name") == name).to_pylist()
    ]
    wanted = set(ids.to_pylist())
    return {row["id"]: described(row) for row in rows if row["id"] in wanted}


def _contaminated(store: Store, corpora: Sequence[str]) -> Iterator[str]:
    """The documents that quote an evaluation set: id, set, quoted words, and the beginning of the text."""
    for corpus in corpora:
        hits, scrubbed = store.current(keys.contamination(corpus)), store.current(keys.scrubbed(corpus))
        for part in hits.parts:
            found = read_table(hits.file(part, "contamination"))
            texts = _texts(scrubbed, _same(scrubbed, part), found.column("id"))
            for row in found.to_pylist():
                yield (
                    f"{corpus} {row['id']}\nquotes {row['set']}: {printable(row['ngram']).strip()!r}, at "
                    f"{row['hits']} places\n{texts[row['id']]}"
                )


def _duplicates(store: Store, reason: str, known: Sequence[str], corpora: Sequence[str]) -> Iterator[str]:
    """The documents that dedup removed for `reason`, each followed by the document that was kept instead."""
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
    return read_table(version.file(part, table), filters=pc.field(column) == value)


def _rows(
    version: Version, part: Part, table: str, names: list[str] | None, ids: pa.ChunkedArray
) -> dict[str, str]:
    """The named columns, or every signal, of the rows with these ids: `name = value` by id."""
    columns = None if names is None else ["id", *names]
    found = read_table(
        version.file(part, table), columns=columns, filters=pc.field("id").isin(ids.combine_chunks())
    )
    return {
        row["id"]: _named({name: value for name, value in row.items() if name not in NOT_SIGNALS})
        for row in found.to_pylist()
    }


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in values.items())


def _texts(version: Version, part: Part, ids: pa.Array | pa.ChunkedArray) -> dict[str, str]:
    """The beginnings of the documents of a part with these ids."""
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
        there = read_table(version.file(part, "documents"), columns=["id"]).column("id")
        if pc.any(pc.is_in(there, value_set=ids)).as_py():
            yield from _texts(version, part, ids).items()


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
