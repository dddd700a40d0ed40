"""trace: finds the training documents that hold a text word for word, and when a checkpoint read them."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.cli.benchmark import wanted
from pipeline.cli.opening import UsageError, opened, whole_store
from pipeline.reports import tables
from pipeline.sources.benchmarks.items import Question
from pipeline.steps.lineage import record
from pipeline.steps.lineage.checkpoints import checkpoint
from pipeline.steps.lineage.trace import LEAST, Reader, Searcher, Span, Traced, TraceError, readers
from pipeline.steps.model import benchmark, recital
from pipeline.steps.model.recital import Passage
from pipeline.store.engines.local import LocalEngine

TEXT_SHOWN, STEPS_SHOWN, DOCUMENTS = 200, 5, 3
EXPLAINED = (
    f"After {recital.PROMPT} tokens of a passage, the likeliest token each time: recited is what gives all "
    f"{recital.RECITED} that follow, tokens how many of them on average."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("text", metavar="TEXT", nargs="?", help="a text, a file of UTF-8, or - for standard input")
    add("--checkpoint", metavar="RUN-STEP", help="also say at which steps this checkpoint read what is found")
    add("--samples", metavar="RUN-STEP", help="instead: the texts that this checkpoint writes")
    add("--benchmark", metavar="A,B", help="instead: the items of benchmarks, as `benchmark --on` names them")
    add("--memory", metavar="RUN-STEP", help="instead: how much of what it read this checkpoint can recite")
    add("--min-tokens", metavar="N", type=int, default=LEAST, help="of a span at least; default: %(default)s")
    add("--count", action="store_true", help="print how often the whole text occurs, of any length")
    add("--json", action="store_true", help="print everything as JSON")


def run(options: argparse.Namespace) -> None:
    asked = [options.text, options.samples, options.benchmark, options.memory]
    if len(asked) - asked.count(None) != 1:
        raise UsageError("trace: give one of TEXT, --samples, --benchmark and --memory")
    if options.min_tokens < 1:
        raise UsageError(f"--min-tokens {options.min_tokens}: must be at least 1")
    named = options.checkpoint or options.samples or options.memory
    store = whole_store()
    found = checkpoint(store, named) if named else None
    text = _text(options.text) if options.text is not None else ""
    searchers = [_searcher(reader) for reader in (readers(store, found) if found else [_of_recipe()])]
    if options.memory and found:
        _print(options, *_memory(recital.memory(store, found, searchers[0])))
    elif options.samples and found:
        _print(options, *_each(recital.written(store, found), searchers, options.min_tokens))
    elif options.benchmark:
        items = [item for one in benchmark.named(wanted(options.benchmark)) for item in one.benchmark.items]
        _print(options, *_each(map(_item, items), searchers, options.min_tokens))
    elif options.count:
        counts = {_whose(one): one.count(text) for one in searchers}
        _print(options, counts, [f"{count:,}  {whose}" for whose, count in counts.items()])
    else:
        for one in searchers:
            one.check(text, options.min_tokens)
        _print(options, *_traced(searchers, text, options.min_tokens))


def _text(named: str) -> str:
    """What is to be traced. Raises TraceError."""
    try:
        if named == "-":
            return sys.stdin.buffer.read().decode()
        path = Path(named)
        is_file = len(named) < 4096 and "\0" not in named and path.is_file()
        return path.read_bytes().decode() if is_file else named
    except UnicodeDecodeError as error:
        raise TraceError(f"{named}: is not UTF-8 at byte {error.start}: convert it first") from None
    except OSError:  # a text too long for the name of a file
        return named


def _of_recipe() -> Reader:
    recipe, store = opened()
    return Reader(store, record.of_recipe(store, recipe))


def _searcher(reader: Reader) -> Searcher:
    return Searcher(reader, LocalEngine(None), partial(print, file=sys.stderr))


def _print(options: argparse.Namespace, answer: Any, lines: Sequence[str]) -> None:
    print(json.dumps(answer, indent=1, ensure_ascii=False) if options.json else "\n".join(lines))


def _whose(searcher: Searcher) -> str:
    through = searcher.reader.through
    return f"through the weights it started from: {through}" if through else "in the training text"


def _traced(searchers: Sequence[Searcher], text: str, least: int) -> tuple[list[Any], list[str]]:
    answers, lines = [], list[str]()
    for searcher in searchers:
        traced = searcher.trace(text, least)
        answers.append({"through": searcher.reader.through, **_as_json(traced)})
        lines += [_summary(traced, least, searcher), *(line for span in traced.spans for line in _span(span))]
    return answers, lines


def _as_json(traced: Traced) -> dict[str, Any]:
    return {"covered": round(traced.covered, 4), "spans": [_span_json(span) for span in traced.spans]}


def _span_json(span: Span) -> dict[str, Any]:
    occurrences = [
        {"corpus": one.corpus, **asdict(one.held), "token": one.token, "steps": one.steps}
        for one in span.occurrences
    ]
    facts = {"text": span.text, "begin": span.begin, "end": span.end, "tokens": len(span.ids)}
    likely = round(span.log_probability, 3)
    return {**facts, "count": span.count, "log_probability": likely, "occurrences": occurrences}


def _summary(traced: Traced, least: int, searcher: Searcher) -> str:
    if not traced.spans:
        return f"no {least} tokens of it occur together {_whose(searcher)}"
    return f"{traced.covered:.1%} of it in {len(traced.spans):,} spans {_whose(searcher)}"


def _span(span: Span) -> Iterator[str]:
    shown = f"{span.text[:TEXT_SHOWN]}..." if len(span.text) > TEXT_SHOWN else span.text
    yield f"\n{len(span.ids):,} tokens, {span.count:,} times: {json.dumps(shown, ensure_ascii=False)}"
    for one in span.occurrences:
        place = (
            f"document {one.held.document} of {one.corpus} ({one.held.source or '-'}), token {one.token:,}"
        )
        yield f"  {place}{_steps(one.steps)}"


def _steps(steps: Sequence[int] | None) -> str:
    if steps is None:
        return ""
    more = f" and {len(steps) - STEPS_SHOWN:,} more, last {steps[-1]:,}" if len(steps) > STEPS_SHOWN else ""
    listed = ", ".join(f"{step:,}" for step in steps[:STEPS_SHOWN])
    return f": read at step {listed}{more}" if steps else ": not read by then"


def _item(question: Question) -> str:
    """A question and its right answer."""
    context = question.context if isinstance(question.context, str) else question.context[question.gold]
    return context + question.continuations[question.gold]


def _each(
    texts: Iterable[str], searchers: Sequence[Searcher], least: int
) -> tuple[dict[str, Any], list[str]]:
    """The longest span of each text, and in how many there is one of at least so many tokens, and of twice
    as many.
    """
    rows = [{"text": text, **_longest(text, searchers, least)} for text in texts]
    totals = {
        f"with {size} tokens": sum(row["tokens"] >= size for row in rows) for size in (least, 2 * least)
    }
    share = sum(row["covered"] for row in rows) / max(len(rows), 1)
    lines = [f"{len(rows):,} texts, {share:.1%} of a text covered", *tables.counts(totals.items())]
    for number, row in enumerate(rows):
        if row["tokens"]:
            documents = ", ".join(f"{one['document']} of {one['corpus']}" for one in row["documents"])
            shown = json.dumps(row["span"][:TEXT_SHOWN], ensure_ascii=False)
            lines.append(
                f"\n{number}: {row['tokens']} tokens, {row['count']:,} times: {shown}\n  {documents}"
            )
    return {"texts": len(rows), "covered": round(share, 4), **totals, "items": rows}, lines


def _longest(text: str, searchers: Sequence[Searcher], least: int) -> dict[str, Any]:
    traced = [one.trace(text, least, DOCUMENTS) for one in searchers]
    best = max(filter(None, (one.longest for one in traced)), key=lambda span: len(span.ids), default=None)
    found = {"covered": round(max(one.covered for one in traced), 4), "tokens": len(best.ids) if best else 0}
    if best is None:
        return found
    where = [{"corpus": one.corpus, "document": one.held.document} for one in best.occurrences]
    return {**found, "span": best.text, "count": best.count, "documents": where}


def _memory(passages: Sequence[Passage]) -> tuple[list[Any], list[str]]:
    """By how often they were read: how many passages are recited, and how many tokens of one."""
    groups: dict[int, list[Passage]] = {}
    for one in passages:
        groups.setdefault(one.read.bit_length(), []).append(one)
    rows = []
    for power, group in sorted(groups.items()):
        times = f"{2 ** (power - 1):,} to {2**power - 1:,} times" if power > 1 else "once"
        whole = [one for one in group if one.recites == recital.RECITED]
        share, tokens = len(whole) / len(group), sum(one.recites for one in group) / len(group)
        documents = ", ".join(dict.fromkeys(one.document for one in whole if one.document))
        rows.append(
            (times if power else "held out", f"{len(group):,}", f"{share:.1%}", f"{tokens:.1f}", documents)
        )
    lines = [*tables.table("read,passages,recited,tokens,documents", rows), "", EXPLAINED]
    return [asdict(one) for one in passages], lines
