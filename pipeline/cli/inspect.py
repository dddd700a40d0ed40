"""inspect: counts the documents that quality rejected, or shows those that quality rejected or dedup removed,
with the evidence and their text after scrubbing.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow.compute as pc

from pipeline.cli.opening import UsageError, add_variant, check_known, opened
from pipeline.reports import tables
from pipeline.stages.quality import RULES
from pipeline.steps.corpus.failures import described
from pipeline.steps.corpus.filters import failed_rule
from pipeline.steps.corpus.quality import reasons
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.parquet import beginnings, read_table
from pipeline.store.store import Store

DUPLICATES = ("exact", "near")
CONTAMINATED = "contaminated"
CHARACTERS = 400
AT_ONCE = 100  # duplicates whose texts are looked for in one pass over the corpora
NOT_SIGNALS = {"id", "failed", "keep", "reason"}  # the other columns in the table of a filter
Row = dict[str, Any]


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
    for corpus in corpora:
        verdicts, scrubbed = store.current(keys.quality(corpus)), store.current(keys.scrubbed(corpus))
        evidence = _evidence(rule, verdicts.manifest["params"])
        if evidence is None:
            continue
        measured = store.current(keys.of_corpus(corpus, evidence.stage))
        for part in verdicts.parts:
            rows = _rows(verdicts, part.name, "verdicts", pc.field("rule") == rule)
            if not rows:
                continue
            ids = [row["id"] for row in rows]
            if evidence.table == "failures":
                mine = (pc.field("name") == rule.partition(".")[0]) & pc.field("id").isin(ids)
                failures = [
                    row for one in (measured, verdicts) for row in _rows(one, part.name, "failures", mine)
                ]
                found = {row["id"]: described(row) for row in failures}
            else:
                signals = _rows(measured, part.name, evidence.table, pc.field("id").isin(ids))
                found = {row["id"]: _named(evidence.of(row)) for row in signals}
            texts = _texts(scrubbed, part.name, ids)
            for row in rows:
                reason = ", ".join(filter(None, (row.get("reason"), found[row["id"]], evidence.limits)))
                yield f"{corpus} {row['id']}\n{reason}\n{texts[row['id']]}"


class _Evidence(NamedTuple):
    """Where the evidence for a rule is stored, in some columns or in all; and the limits of the rule."""

    stage: str
    table: str
    limits: str
    columns: tuple[str, ...] = ()

    def of(self, row: Row) -> Row:
        """The signals in a row."""
        return {n: value for n, value in row.items() if n in (self.columns or row.keys() - NOT_SIGNALS)}


def _evidence(rule: str, params: Mapping[str, Any]) -> _Evidence | None:
    """The evidence for a rule. None if verdicts with these `params` do not use the rule."""
    name, _, error = rule.partition(".")
    for own in params.get("filters", ()):
        if own["name"] == name:
            stage, limits = f"{keys.FILTERS}/{name}", _named(own["params"])
            return _Evidence(stage, "failures", "") if error else _Evidence(stage, "signals", limits)
    if rule == "language" and params.get("languages") is not None:
        limits = _named({name: params[name] for name in ("languages", "min_language_confidence")})
        return _Evidence("languages", "languages", limits, ("language", "language_confidence"))
    if rule not in params:
        return None  # languages are not detected, or the filter was added to the recipe later
    return _Evidence("signals", "signals", _named({rule: params[rule]}), (rule.partition("_")[2],))


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
        removed = _rows(decisions, part.name, "decisions", pc.field("reason") == reason)
        for start in range(0, len(removed), AT_ONCE):
            rows = removed[start : start + AT_ONCE]
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
    from_corpus, removed = texts.get(row["id"], gone)
    to_corpus, kept = texts.get(row["duplicate_of"], gone)
    return (
        f"removed {from_corpus} {row['id']}: {row['reason']}, Jaccard {row['jaccard']:.3f}\n{removed}\n"
        f"kept {to_corpus} {row['duplicate_of']}, which stands for {row['cluster']} documents\n{kept}"
    )


def _rows(version: Version, part: str, table: str, where: pc.Expression | None = None) -> list[Row]:
    return read_table(version.named(part, table), filters=where).to_pylist()


def _texts(version: Version, part: str, ids: Sequence[str]) -> dict[str, str]:
    """The beginnings of those documents of a part that have these ids."""
    found = beginnings(version.named(part, "documents"), ids, CHARACTERS)
    return {id_: tables.printable(text) for id_, text in found.items()}


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
