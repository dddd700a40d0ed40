"""trace: finds documents that hold a text word for word, or nearly, and when a checkpoint read them."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from pipeline.cli.benchmark import wanted
from pipeline.cli.opening import UsageError, check_least, opened, text_of, whole_store
from pipeline.reports import tables
from pipeline.reports.tables import Output
from pipeline.steps.dedup.passage_index import LEAST_ALIKE
from pipeline.steps.lineage import record
from pipeline.steps.lineage.checkpoints import Checkpoint, checkpoint
from pipeline.steps.lineage.readers import Reader, Reading, readers, readings_of_each
from pipeline.steps.model import benchmark, recital
from pipeline.steps.model.recital import Passage
from pipeline.steps.trace import near
from pipeline.steps.trace.trace import LEAST_TOKENS, Searcher, TracedText
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from trainer.system import terminal
from trainer.system.wording import counted

STEPS_SHOWN, DOCUMENTS, CHECKPOINTS = 5, 3, 3
EXPLAINED = (
    f"Each passage is continued by greedy decoding after its first {recital.PROMPT} tokens. recited: the "
    f"passages of which all {recital.RECITED} following tokens agree; tokens: how many agree on average."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("text", metavar="TEXT", nargs="?", help="a text, a file in UTF-8, or - for standard input")
    add("--near", metavar="TEXT", help="instead: documents that resemble this text, contain it or are in it")
    add("--checkpoint", metavar="RUN-STEP", help="also say at which steps this checkpoint read the documents")
    add("--samples", metavar="RUN-STEP", help="instead: the samples that this checkpoint writes")
    add("--benchmark", metavar="A,B", help="instead: items of benchmarks, named as in `benchmark --on`")
    add("--memory", metavar="RUN-STEP", help="instead: how much training text this checkpoint can recite")
    add(
        "--min-tokens",
        metavar="N",
        type=int,
        default=LEAST_TOKENS,
        help="the fewest tokens of a span; default: %(default)s",
    )
    add(
        "--limit",
        metavar="N",
        type=int,
        default=near.DOCUMENTS_SHOWN,
        help="the most documents that --near shows; default: %(default)s",
    )
    add(
        "--min-similarity",
        metavar="S",
        type=float,
        default=LEAST_ALIKE,
        help="for --near: share of the text or of the document that the other contains; default: %(default)s",
    )
    add("--count", action="store_true", help="print how often the whole text occurs, of any length")
    add("--json", action="store_true", help="print everything as JSON")


def run(options: argparse.Namespace) -> None:
    _check(options)
    store, text = whole_store(), text_of(options.text or options.near or "")
    if (options.text is not None or options.near is not None) and not text.strip():
        raise UsageError("trace: the text is empty: give a text, a file, or - for standard input")
    with terminal.doing("searching the training text"):
        shown = _output(store, options, text).shown(options.json)
    print(shown)


def _check(options: argparse.Namespace) -> None:
    """Raises UsageError for impossible options, and for those that do not go together."""
    asked = [options.text, options.near, options.samples, options.benchmark, options.memory]
    if len(asked) - asked.count(None) != 1:
        raise UsageError("trace: give one of TEXT, --near, --samples, --benchmark and --memory")
    if not 0 < options.min_similarity <= 1:
        raise UsageError(f"--min-similarity {options.min_similarity}: must be above 0 and at most 1")
    check_least("--limit", options.limit)
    check_least("--min-tokens", options.min_tokens)
    if options.count and options.text is None:
        raise UsageError("--count: give a TEXT, too")
    if len(_named(options)) > 1:
        raise UsageError("trace: give one of --checkpoint, --samples and --memory")


def _named(options: argparse.Namespace) -> list[str]:
    """The checkpoints that were named."""
    return [one for one in (options.checkpoint, options.samples, options.memory) if one is not None]


def _output(store: Store, options: argparse.Namespace, text: str) -> Output:
    named = [checkpoint(store, one) for one in _named(options)]
    if options.near is not None:
        near.check(text)
        return _near(store, _whose_text(store, named), text, options)
    least, say = options.min_tokens, partial(print, file=sys.stderr)
    searchers = [Searcher(one, LocalEngine(None), say) for one in _whose_text(store, named)]
    if options.memory:
        recited = recital.recited_passages(store, named[0], searchers[0])
        return Output(recited, _recited(recited))
    if options.samples:
        return _texts(recital.samples_again(store, named[0]), searchers, least)
    if options.benchmark is not None:
        return _texts(_questions(options.benchmark), searchers, least)
    return _count(searchers, text) if options.count else _trace(searchers, text, least)


def _whose_text(store: Store, named: Sequence[Checkpoint]) -> list[Reader]:
    """The readers whose text is searched: the checkpoint that was named and those of its ancestors whose runs
    are known, else the recipe.
    """
    if named:
        return [reader for reader in readers(store, named[0]) if reader.training]
    recipe, store = opened()
    return [Reader(store, record.of_recipe(store, recipe))]


def _count(searchers: Sequence[Searcher], text: str) -> Output:
    counts = {_whose(searcher): searcher.count(text) for searcher in searchers}
    return Output(counts, [f"{count:,}  {whose}" for whose, count in counts.items()])


def _trace(searchers: Sequence[Searcher], text: str, least: int) -> Output:
    for one in searchers:
        one.check(text, least)
    traced = {searcher: searcher.trace(text, least) for searcher in searchers}
    lines = (line for one, found in traced.items() for line in _spans(one, found, least))
    return Output([{"through": one.reader.through, **asdict(found)} for one, found in traced.items()], lines)


def _near(store: Store, readers: Sequence[Reader], text: str, options: argparse.Namespace) -> Output:
    """What is nearly a text, with the steps of the checkpoint that was named, else of those that read it."""
    engine, say = LocalEngine(None), partial(print, file=sys.stderr)
    searchers = [near.NearSearcher(reader, engine, say, options.min_similarity) for reader in readers]
    found = [(searcher.reader.through, searcher.near(text, options.limit)) for searcher in searchers]
    shown = [match.document for _, matches in found for match in matches]
    read = readings_of_each(store, shown) if shown and not options.checkpoint else {}
    everything = [
        {"through": through, "documents": [asdict(match) | _read(read, match) for match in matches]}
        for through, matches in found
    ]
    return Output(everything, (line for one in found for line in _alike(*one, read, options.min_similarity)))


def _read(read: Mapping[str, Sequence[Reading]], match: near.Near) -> dict[str, Any]:
    facts = ("checkpoint", "through", "steps", "first", "last")
    if match.document not in read:
        return {}
    return {"read_by": [{name: getattr(by, name) for name in facts} for by in read[match.document]]}


def _alike(
    through: str | None, matches: Sequence[near.Near], read: Mapping[str, Sequence[Reading]], least: float
) -> Iterator[str]:
    whose = f"through the weights it started from: {through}" if through else "in the corpora"
    if not matches:
        share = f"{least:.0%}"
        yield f"no document {whose} has {share} of the text, and none has {share} of its own in the text"
        return
    yield f"{counted(len(matches), 'documents')} {whose}, by 3-grams of words"
    for match in matches:
        of_text = f"has {match.holds:.0%} of the text, {match.held:.0%} of it is in the text"
        shares = f"Jaccard {match.jaccard:.2f}, {of_text}"
        yield f"\n{shares}: {tables.quoted(match.beginning)}"
        yield f"  document {match.document} of {match.corpus} ({match.source or match.url or '-'})"
        yield f"  {match.fate}{_steps(match.steps)}"
        if match.document in read:
            yield f"  {_checkpoints(read[match.document])}"


def _checkpoints(readings: Sequence[Reading]) -> str:
    """The checkpoints that read a document, those that read it most often first."""
    told = []
    for one in sorted(readings, key=lambda one: -(one.steps or 0)):
        through = f" through {one.through}" if one.through else ""
        steps = (
            "perhaps"
            if one.steps is None
            else f"at {counted(one.steps, 'steps')}, {one.first:,} to {one.last:,}"
        )
        told.append(f"{one.checkpoint}{through} {steps}")
    more = f"; and {len(told) - CHECKPOINTS:,} more" if len(told) > CHECKPOINTS else ""
    return f"read by {'; '.join(told[:CHECKPOINTS])}{more}" if told else "no checkpoint on disk read it"


def _whose(searcher: Searcher) -> str:
    through = searcher.reader.through
    return f"through the weights it started from: {through}" if through else "in the training text"


def _spans(searcher: Searcher, traced: TracedText, least: int) -> Iterator[str]:
    if not traced.spans:
        yield f"no {least} tokens of it occur together {_whose(searcher)}"
        return
    yield f"{traced.covered:.1%} of it in {counted(len(traced.spans), 'spans')} {_whose(searcher)}"
    for span in traced.spans:
        found = f"{span.tokens:,} tokens, {counted(span.count, 'times')}"
        yield f"\n{found}: {tables.quoted(span.text)}"
        for occurrence in span.occurrences:
            called = tables.called(occurrence.title, occurrence.source)
            place = f"{occurrence.document} of {occurrence.corpus} ({called}), token {occurrence.token:,}"
            yield f"  document {place}{_steps(occurrence.steps, 'these tokens were ')}"


def _steps(steps: Sequence[int] | None, what: str = "") -> str:
    if steps is None:
        return ""
    more = f" and {len(steps) - STEPS_SHOWN:,} more, last {steps[-1]:,}" if len(steps) > STEPS_SHOWN else ""
    listed = ", ".join(f"{step:,}" for step in steps[:STEPS_SHOWN])
    return f": {what}read at step {listed}{more}" if steps else f": {what}not read by then"


def _questions(names: str) -> Iterator[str]:
    """The questions of benchmarks, each with its right answer."""
    for question in (item for one in benchmark.named(wanted(names)) for item in one.benchmark.items):
        context = question.context if isinstance(question.context, str) else question.context[question.gold]
        yield context + question.continuations[question.gold]


def _texts(texts: Iterable[str], searchers: Sequence[Searcher], least: int) -> Output:
    """The longest span of each text, and how many texts have one of so many tokens or twice as many."""
    rows = [_longest(text, searchers, least) for text in texts]
    totals = {
        f"with {size} tokens": sum(row["tokens"] >= size for row in rows) for size in (least, 2 * least)
    }
    share = sum(row["covered"] for row in rows) / max(len(rows), 1)
    found = {"texts": len(rows), "covered": round(share, 4), **totals, "items": rows}
    return Output(found, _items(found))


def _longest(text: str, searchers: Sequence[Searcher], least: int) -> dict[str, Any]:
    traced = [searcher.trace(text, least, DOCUMENTS) for searcher in searchers]
    found = filter(None, (one.longest for one in traced))
    best = max(found, key=lambda span: span.tokens, default=None)
    covered = max(one.covered for one in traced)
    return {"text": text, "covered": covered, "tokens": best.tokens if best else 0, "longest": best}


def _items(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"{counted(answer['texts'], 'texts')}, {answer['covered']:.1%} of a text covered"
    yield from tables.counts((name, count) for name, count in answer.items() if name.startswith("with "))
    for number, row in enumerate(answer["items"]):
        if span := row["longest"]:
            documents = ", ".join(
                f"{occurrence.document} of {occurrence.corpus}" for occurrence in span.occurrences
            )
            found = tables.quoted(span.text)
            yield f"\n{number}: {span.tokens} tokens, {counted(span.count, 'times')}: {found}"
            yield f"  {documents}"


def _recited(passages: Sequence[Passage]) -> Iterator[str]:
    """How many passages are recited, and how many tokens of one on average, by how often the passages were
    read.
    """
    groups: dict[int, list[Passage]] = {}
    for passage in passages:
        groups.setdefault(passage.read.bit_length(), []).append(passage)
    rows = []
    for power, group in sorted(groups.items()):
        times = f"{2 ** (power - 1):,} to {2**power - 1:,} times" if power > 1 else "once"
        whole = [one for one in group if one.recites == recital.RECITED]
        share, tokens = len(whole) / len(group), sum(one.recites for one in group) / len(group)
        documents = ", ".join(dict.fromkeys(one.document for one in whole if one.document))
        figures = (f"{len(group):,}", f"{share:.1%}", f"{tokens:.1f}", documents)
        rows.append((times if power else "held out", *figures))
    yield from (*tables.table("read,passages,recited,tokens,documents", rows), "", EXPLAINED)
