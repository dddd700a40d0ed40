"""inspect: how much the rules of quality reject, now, with other thresholds or in a variant; and documents at
random that were rejected, removed by dedup or kept, with the evidence.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from textwrap import fill
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.cli.opening import UsageError, add_variant, check_known, opened
from pipeline.plugins.filters import Filter
from pipeline.recipe import variants
from pipeline.recipe.loading import recipe_path
from pipeline.recipe.post_training import JOBS
from pipeline.recipe.recipe import BASE, Recipe, RecipeError
from pipeline.reports import rejections, tables
from pipeline.reports.evidence import introduced, judged, titles
from pipeline.reports.rejections import Amounts, Column, Place, Row
from pipeline.stages import edits, pii
from pipeline.stages.quality import RULES, QualityParams
from pipeline.steps.corpus.filters import failed_rule
from pipeline.steps.corpus.quality import Quality
from pipeline.store import keys, variant_names
from pipeline.store.manifest import Version
from pipeline.store.parquet import beginnings, read_table
from pipeline.store.store import Store, StoreError
from trainer.config.run import override
from trainer.system import terminal
from trainer.system.errors import TrainerError

KEPT = "kept"
DUPLICATES = ("exact", "near")
CONTAMINATED = "contaminated"
CHARACTERS = 400
BEGINNING = 80  # characters, where many documents are listed
WIDTH = 100  # of the many signals of a kept document
Draw = Callable[..., Iterator[tuple[Place, list[Row]]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    view = parser.add_mutually_exclusive_group()
    view.add_argument(
        "rule",
        metavar="RULE",
        nargs="?",
        help="show documents of this quality rule or filter of your own (FILTER.error: where it raised), and "
        "half as many kept ones; or of `kept`, `exact`, `near` or `contaminated`; or what a rule of `edits` "
        "cut, such as `policy` or `repeated_line`; default: count the "
        "documents of every quality rule",
    )
    view.add_argument("--by", choices=["language"], help="count the kept documents of each language")
    view.add_argument(
        "--what-if",
        metavar="SETTING=VALUE",
        action="append",
        help="count what each rule would reject with another setting of `quality`; can be repeated",
    )
    view.add_argument("--against", metavar="V", help="show what a variant, or `base`, judges differently")
    add_variant(parser)
    parser.add_argument("--corpus", metavar="C", help="look at this corpus only")
    number = partial(parser.add_argument, metavar="N", type=int)
    number("--limit", default=10, help="how many documents to show; default: %(default)s")
    number("--seed", default=0, help="another number draws other documents; default: %(default)s")


def run(options: argparse.Namespace) -> None:
    recipe, store = opened(options.variant)
    corpora = [options.corpus] if options.corpus is not None else recipe.corpus_names
    check_known("--corpus", corpora, recipe.corpus_names)
    for option, least in (("limit", 1), ("seed", 0)):
        if (given := getattr(options, option)) < least:
            raise UsageError(f"--{option} {given}: must be at least {least}")
    draw = partial(rejections.sample, size=options.limit, seed=options.seed)
    if options.by:
        lines = _by_language(recipe, store, corpora)
    elif options.what_if:
        lines = _what_if(recipe, store, corpora, options.what_if, draw)
    elif options.against is not None:
        lines = _against(recipe, store, corpora, options.against, draw)
    elif options.rule is not None:
        lines = _documents(recipe, store, corpora, options.rule, draw)
    else:
        lines = _counted(store, corpora)
    for line in terminal.awaited("reading verdicts and documents", lines):
        print(line)


def _counted(store: Store, corpora: list[str]) -> Iterator[str]:
    """The kept and the rejected documents by corpus and rule."""
    found = rejections.totals(store, corpora, "rule")
    whole = rejections.summed(found, 0)
    rows = (
        (key[0], key[1] or KEPT, *_shares(found[key], whole[key[:1]])) for key in _ordered(found, corpora)
    )
    return tables.table("corpus,verdict,documents,share,of bytes", rows)


def _ordered(amounts: Amounts, corpora: list[str]) -> list[tuple[Any, ...]]:
    """By corpus, first what is kept, then by the number of documents."""
    return sorted(amounts, key=lambda key: (corpora.index(key[0]), bool(key[1]), -amounts[key][0], str(key)))


def _by_language(recipe: Recipe, store: Store, corpora: list[str]) -> Iterator[str]:
    """What is kept of each language in each corpus."""
    corpora = [name for name in corpora if recipe.rules(name).quality.detects]
    if not corpora:
        raise UsageError(
            "--by language: no language was detected: set `quality.by_language` and run the job `corpus`"
        )
    detected = partial(_read, store, keys.languages, "languages", "language")
    found = rejections.totals(store, corpora, "language", "keep", language=detected)
    whole = rejections.summed(found, 0, 1)
    order = _ordered(whole, corpora)
    rows = ((*key, f"{whole[key][0]:,}", *_shares(found[*key, True], whole[key])) for key in order)
    return tables.table("corpus,language,documents,kept,share,of bytes", rows)


def _shares(amount: np.ndarray, whole: np.ndarray) -> tuple[str, ...]:
    """A number of documents, and what share of the documents and bytes it is."""
    return f"{amount[0]:,}", *(f"{share:.1%}" for share in amount / np.maximum(whole, 1))


def _read(store: Store, key: Callable[[str], str], table: str, name: str, corpus: str, part: str) -> pa.Table:
    return read_table(store.current(key(corpus)).named(part, table), ["id", name])


def _what_if(recipe: Recipe, store: Store, corpora: list[str], asked: list[str], draw: Draw) -> Iterator[str]:
    """What changes with other thresholds. Raises UsageError where more would have to be measured."""
    path = recipe_path()
    given: dict[str, Any] = {}
    try:
        for change in asked:
            for place in ("", *(f"corpora.{name}." for name in corpora)):
                override(given, f"{place}quality.{change}")
        changed = variants.load(path, recipe.variant or BASE, given)
    except (TrainerError, RecipeError) as error:
        raise UsageError(f"--what-if: {str(error).removeprefix(f'{path}: ')}") from None
    rules = {name: (recipe.rules(name).quality, changed.rules(name).quality) for name in corpora}
    if any(
        _measured(new) != _measured(now) or (new.detects and not now.detects) for now, new in rules.values()
    ):
        raise UsageError(
            "--what-if: this needs languages or filters that have not been measured: set them in a variant, "
            "run the job `corpus` for it, and name it in --against"
        )

    def judge(corpus: str, part: str) -> pa.Table:
        return Quality(corpus, rules[corpus][1]).judged_again(store, part)

    return _differences(store, corpora, ("now", "then"), judge, draw, None)


def _measured(rules: QualityParams) -> Any:
    """What is measured for rules."""
    own = [(one.name, one.python, one.version, Filter(one).measured_with) for one in rules.filters]
    return own, rules.language_file


def _against(recipe: Recipe, store: Store, corpora: list[str], variant: str, draw: Draw) -> Iterator[str]:
    """What a variant judges differently. Raises UsageError if its verdicts are missing or on other text."""
    this, (_, other) = recipe.variant or BASE, opened(variant)
    if variant == this:
        raise UsageError(f"--against {variant}: this is the recipe itself: name another variant")
    for corpus in corpora:
        text = [keys.scrubbed(corpus)]
        try:
            other.current(keys.quality(corpus))
        except StoreError as error:
            name, section = variant_names.split(variant, JOBS)
            remedy = f"python -m pipeline variants run {name} --job {JOBS.get(section, 'corpus')}"
            raise UsageError(f"--against {variant}: {error}: `{remedy}`") from None
        if store.data_versions(text) != other.data_versions(text):
            raise UsageError(
                f"--against {variant}: the scrubbed text of {corpus} differs, so the verdicts cannot be "
                "compared: name a variant that changes `quality` alone"
            )
    judge = partial(_read, other, keys.quality, "verdicts", "rule")
    return _differences(store, corpora, (this, variant), judge, draw, other)


def _differences(
    store: Store, corpora: list[str], names: tuple[str, str], judge: Column, draw: Draw, other: Store | None
) -> Iterator[str]:
    """What each rule rejects by the verdicts in `store` and by those that `judge` gives, and documents that
    only one of them keeps, with evidence where `other` is the store of the latter.
    """
    found = rejections.totals(store, corpora, "rule", "then", then=judge)
    before, after = rejections.summed(found, 0, 1), rejections.summed(found, 0, 2)
    order = _ordered(after | before, corpora)
    rows = [(key[0], key[1] or KEPT, *_numbers(before[key], after[key])) for key in order]
    yield from tables.table("corpus,verdict,{0},{0} bytes,{1},{1} bytes".format(*names), rows)
    both = partial(rejections.verdicts, store, corpora, then=judge)
    for keeps, rejects, judging in ((1, 2, other), (2, 1, other and store)):
        yield f"\nkept {names[keeps - 1]}, rejected {names[rejects - 1]}:"
        changed = (key for key in _ordered(found, corpora) if key[rejects] and not key[keeps])
        rows = [(key[0], key[rejects], *_numbers(found[key])) for key in changed]
        yield from tables.table("corpus,rule,documents,bytes", rows) if rows else ["no document"]
        kept, rejected = (("", "rule", "then")[place] for place in (keeps, rejects))
        for place, drawn in draw(both(), pc.field(kept).is_null() & pc.field(rejected).is_valid()):
            ruled = [row | {"rule": row[rejected]} for row in drawn]
            if judging:
                yield from (f"\n{entry}" for entry in _judged(judging, place, ruled))
            else:
                told = introduced(store, place, [row["id"] for row in ruled], BEGINNING) if ruled else {}
                yield from (
                    f"    {place[0]} {row['id']} {row['rule']}\n        {told[row['id']]}" for row in ruled
                )


def _numbers(*amounts: np.ndarray) -> Iterator[str]:
    return (f"{number:,}" for amount in amounts for number in amount)


def _documents(recipe: Recipe, store: Store, corpora: list[str], rule: str, draw: Draw) -> Iterator[str]:
    """Documents that `rule` rejected or removed, or that are kept."""
    own = recipe.filter_names
    check_known(
        "RULE", [rule], [*RULES, *own, *map(failed_rule, own), *DUPLICATES, CONTAMINATED, KEPT, *edits.NAMES]
    )
    if rule == CONTAMINATED and not recipe.decontamination:
        raise UsageError("contaminated: nothing was searched for: set `decontamination` and run `corpus`")
    verdicts = partial(rejections.verdicts, store, corpora)
    if rule in DUPLICATES:
        decisions = rejections.stored(store, [""], lambda _: keys.DEDUP, "decisions")
        removed = (one for one in decisions if keys.decided_corpus(one[0][1]) in corpora)
        drawn = [row for _, rows in draw(removed, pc.field("reason") == rule) for row in rows]
        entries = _duplicates(store, recipe.corpus_names, drawn)
    elif rule == CONTAMINATED:
        hits = rejections.stored(store, corpora, keys.contamination, "contamination")
        entries = (text for one in draw(hits, pc.field("quote")) for text in _contaminated(store, *one))
    elif rule in edits.NAMES:
        cuts = rejections.stored(store, filter(recipe.is_edited, corpora), keys.edited, "cuts")
        entries = (text for one in draw(cuts, pc.field("rule") == rule) for text in _cut(recipe, *one))
    else:
        which = pc.field("keep") if rule == KEPT else pc.field("rule") == rule
        entries = (text for one in draw(verdicts(), which) for text in _judged(store, *one))
    shown = 0
    for entry in entries:
        shown += 1
        yield f"{entry}\n"
    if not shown:
        yield f"{rule}: no document of {', '.join(corpora)}"
    elif rule not in (*DUPLICATES, CONTAMINATED, KEPT, *edits.NAMES):
        yield "kept, at random:\n"
        for place, rows in draw(verdicts(), pc.field("keep"), size=(shown + 1) // 2):
            kept = [row | {"rule": rule} for row in rows]
            yield from (f"{entry}\n" for entry in _judged(store, place, kept))


def _cut(recipe: Recipe, place: Place, rows: Sequence[Row]) -> Iterator[str]:
    """What was cut, scrubbed now, and where it was."""
    read = pa.RecordBatch.from_pylist([{"id": row["id"], "text": row["text"]} for row in rows])
    texts = pii.scrub(read, recipe.rules(place[0]).scrub)[0].column("text").to_pylist()
    for row, text in zip(rows, texts, strict=True):
        where = f"characters {row['start']:,} to {row['end']:,}"
        yield f"{place[0]} {row['id']}, {where}\n{tables.printable(text[:CHARACTERS])}"


def _contaminated(store: Store, place: Place, rows: Sequence[Row]) -> Iterator[str]:
    """Documents that quote an evaluation set: id, set, quoted words, and the beginning of the text."""
    corpus, part = place
    ids = [row["id"] for row in rows]
    texts, names = _texts(store.current(keys.scrubbed(corpus)), part, ids), _named(store, place, ids)
    for row in rows:
        quoted = tables.printable(row["ngram"]).strip()
        quotes = f"quotes {row['set']}: {quoted!r}, {row['rare']:.0%} rare, at {row['hits']} places"
        yield f"{names[row['id']]}\n{quotes}\n{texts[row['id']]}"


def _duplicates(store: Store, corpora: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """Documents that dedup removed, each followed by the document of `corpora` that was kept instead."""
    wanted = [row[name] for row in rows for name in ("id", "duplicate_of")]
    texts: dict[str, str] = {}
    names: dict[str, str] = {}
    for corpus in corpora:
        version = store.current(keys.scrubbed(corpus))
        for part in version.parts:
            found = _texts(version, part.name, wanted)
            texts |= found
            names |= _named(store, (corpus, part.name), list(found)) if found else {}
    for row in rows:
        removed, kept = (texts.get(row[name], "(no longer in the store)") for name in ("id", "duplicate_of"))
        gone, stays = (names.get(row[name], f"? {row[name]}") for name in ("id", "duplicate_of"))
        yield (
            f"removed {gone}: {row['reason']}, Jaccard {row['jaccard']:.3f}\n{removed}\n"
            f"kept {stays}, which stands for {row['cluster']} documents\n{kept}"
        )


def _judged(store: Store, place: Place, rows: Sequence[Row]) -> Iterator[str]:
    names = _named(store, place, [row["id"] for row in rows])
    for id_, reason, text in judged(store, place, rows, CHARACTERS):
        said = reason if all(row["rule"] for row in rows) else fill(reason, WIDTH)
        yield "\n".join(filter(None, (names[id_], said, tables.printable(text))))


def _named(store: Store, place: Place, ids: Sequence[str]) -> dict[str, str]:
    """Corpus and id of documents of a part, with what people call them."""
    documents = store.current(keys.scrubbed(place[0])).named(place[1], "documents")
    return {id_: f"{place[0]} {id_} {called}".strip() for id_, called in titles(documents, ids).items()}


def _texts(version: Version, part: str, ids: Sequence[str]) -> dict[str, str]:
    """The beginnings of those documents of a part that have these ids."""
    found = beginnings(version.named(part, "documents"), ids, CHARACTERS)
    return {id_: tables.printable(text) for id_, text in found.items()}
