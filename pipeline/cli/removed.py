"""inspect: documents that quality rejected or dedup removed, with the evidence, as scrubbing left them."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import PipelineError
from pipeline.parquet import batches
from pipeline.store import Part, Store, Version

DUPLICATES = ("exact", "near")
CHARACTERS = 400


class InspectError(PipelineError):
    """A rule or a corpus that does not exist, or versions that do not belong together."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    inspect = commands.add_parser("inspect", help="documents that a quality rule rejected, or that dedup removed as exact or near duplicates")
    inspect.add_argument("rule", metavar="RULE", help="a quality rule, `exact` or `near`")
    inspect.add_argument("--corpus", metavar="C", help="of this corpus only")
    inspect.add_argument("--limit", metavar="N", type=int, default=10, help="how many documents to show")
    inspect.set_defaults(run=_inspect)


def _inspect(options: argparse.Namespace) -> None:
    from pipeline.assets.resources import default_store
    from pipeline.recipe import load_recipe, recipe_path
    from pipeline.stages.quality import QualityRule

    known = load_recipe(recipe_path()).corpus_names
    if options.corpus not in (None, *known):
        raise InspectError(f"--corpus: there is no corpus {options.corpus!r}; there are {', '.join(known)}")
    if options.rule not in (*QualityRule, *DUPLICATES):
        raise InspectError(f"there is no rule {options.rule!r}; there are {', '.join((*QualityRule, *DUPLICATES))}")
    if options.limit < 1:
        raise InspectError(f"--limit {options.limit}: show at least one document")
    store, corpora = default_store(), [options.corpus] if options.corpus else known
    found = _duplicates(store, options.rule, known, corpora) if options.rule in DUPLICATES else _rejected(store, options.rule, corpora)
    shown = 0
    for shown, entry in enumerate(found, start=1):
        print(entry, end="\n\n")
        if shown >= options.limit:
            break
    if not shown:
        print(f"{options.rule}: no document of {', '.join(corpora)}")


def _rejected(store: Store, rule: str, corpora: Sequence[str]) -> Iterator[str]:
    """What quality rejected by `rule`: id, the signal beside its threshold, how the text begins."""
    signal = rule.partition("_")[2]
    for corpus in corpora:
        verdicts, signals, scrubbed = (store.current(f"corpora/{corpus}/{stage}") for stage in ("quality", "signals", "scrubbed"))
        for version, source in ((verdicts, signals), (signals, scrubbed)):
            if version.manifest["inputs"].get(source.key) != source.data_version:
                raise InspectError(f"{verdicts.key} was made from an earlier {source.key}: materialize {verdicts.key} first")
        threshold = verdicts.manifest["params"][rule]
        for part in verdicts.parts:
            ids = _where(verdicts, part, "verdicts", "rule", rule).column("id")
            if len(ids):
                measured = _rows(signals, _same(signals, part), "signals", ["id", signal], ids)
                texts = _texts(scrubbed, _same(scrubbed, part), ids)
                for row in ids.to_pylist():
                    yield f"{corpus} {row}\n{signal} = {_number(measured[row])}, {rule} = {_number(threshold)}\n{texts[row]}"


def _duplicates(store: Store, reason: str, known: Sequence[str], corpora: Sequence[str]) -> Iterator[str]:
    """What dedup removed for `reason`, and below it the document that stayed in its place."""
    decisions = store.current("dedup")
    scrubbed = {corpus: store.current(f"corpora/{corpus}/scrubbed") for corpus in known}
    for corpus in corpora:
        for part in decisions.parts:
            if part.name.partition(".")[0] != corpus:
                continue
            removed = _where(decisions, part, "decisions", "reason", reason)
            for start in range(0, removed.num_rows, 100):
                rows = removed.slice(start, 100)
                wanted = pc.unique(pa.chunked_array([*rows.column("id").chunks, *rows.column("duplicate_of").chunks]))
                texts = {name: (home, text) for home, version in scrubbed.items() for name, text in _anywhere(version, wanted)}
                for row in rows.to_pylist():
                    yield _pair(row, texts)


def _pair(row: dict[str, Any], texts: dict[str, tuple[str, str]]) -> str:
    gone = ("?", "(no longer in the store)")
    (from_corpus, removed), (to_corpus, kept) = texts.get(row["id"], gone), texts.get(row["duplicate_of"], gone)
    evidence = f"removed {from_corpus} {row['id']}: {row['reason']}, Jaccard {row['jaccard']:.3f}"
    return f"{evidence}\n{removed}\nkept {to_corpus} {row['duplicate_of']}, which stands for {row['cluster']} documents\n{kept}"


def _same(version: Version, part: Part) -> Part:
    return next(other for other in version.parts if other.name == part.name)


def _where(version: Version, part: Part, table: str, column: str, value: str) -> pa.Table:
    return pq.read_table(version.file(part, table), filters=pc.field(column) == value)


def _rows(version: Version, part: Part, table: str, columns: list[str], ids: pa.ChunkedArray) -> dict[str, Any]:
    """The second column by the first, for these ids."""
    found = pq.read_table(version.file(part, table), columns=columns, filters=pc.field("id").isin(ids.combine_chunks()))
    return dict(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _texts(version: Version, part: Part, ids: pa.Array | pa.ChunkedArray) -> dict[str, str]:
    """How the documents of a part with these ids begin."""
    texts: dict[str, str] = {}
    for batch in batches(version.file(part, "documents"), ["id", "text"]):
        found = batch.filter(pc.is_in(batch.column("id"), value_set=ids))
        beginnings = pc.utf8_slice_codeunits(found.column("text"), 0, CHARACTERS)
        texts |= {name: _printable(text) for name, text in zip(found.column("id").to_pylist(), beginnings.to_pylist(), strict=True)}
    return texts


def _anywhere(version: Version, ids: pa.Array) -> Iterator[tuple[str, str]]:
    for part in version.parts:
        there = pq.read_table(version.file(part, "documents"), columns=["id"]).column("id")
        if pc.any(pc.is_in(there, value_set=ids)).as_py():
            yield from _texts(version, part, ids).items()


def _printable(text: str) -> str:
    """Crawled text may hold what a terminal takes for commands."""
    lines = ("".join(character if character.isprintable() else "�" for character in line.expandtabs()) for line in text.splitlines())
    return "\n".join(f"    {line}" for line in lines)


def _number(value: float | bool) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
