"""scrub, quality and dedup on plain files."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tqdm import tqdm

from pipeline.store.engine import LocalEngine
from pipeline.store.errors import PipelineError

if TYPE_CHECKING:
    from pipeline.steps.files.tables import Outcome

# The kernels' modules take a second to import, so a command imports what it needs.
# bytes of text: workers load the kernels again, and reading, which they do not share, is half of the work
PROCESSES_PAY_ABOVE = 200_000_000
Task = TypeVar("Task")
Result = TypeVar("Result")


class UsageError(PipelineError):
    """An option that does not exist or makes no sense."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    scrub = commands.add_parser(
        "scrub", help="replace personal data and secrets: OUT/documents.parquet, OUT/spans.parquet"
    )
    scrub.add_argument("--kinds", metavar="A,B", help="the kinds to replace; all when not given")
    scrub.add_argument(
        "--replacement",
        choices=("placeholder", "format"),
        default="placeholder",
        help="[EMAIL], or a fixed value of the same format",
    )
    quality = commands.add_parser(
        "quality", help="signals and a verdict for each document: OUT/verdicts.parquet"
    )
    quality.add_argument("--profile", metavar="P", default="default", help="the thresholds to judge by")
    quality.add_argument(
        "--languages", metavar="A,B", help="keep documents in these languages only, such as en,de"
    )
    dedup = commands.add_parser(
        "dedup", help="exact and near duplicates, each verified: OUT/decisions.parquet"
    )
    dedup.add_argument(
        "--threshold",
        type=float,
        default=0.8,
        help="the Jaccard similarity of word 5-grams from which a document is a duplicate",
    )
    for command, run in ((scrub, _scrub), (quality, _quality), (dedup, _dedup)):
        command.add_argument(
            "paths", metavar="IN", nargs="+", help="jsonl, jsonl.gz, jsonl.zst, parquet; paths or globs"
        )
        command.add_argument(
            "-o", "--out", metavar="OUT", type=Path, required=True, help="the directory for the results"
        )
        command.set_defaults(run=run)


def _scrub(options: argparse.Namespace) -> None:
    from pipeline.stages.pii import PiiKind, PiiParams
    from pipeline.steps.files import tables

    names = list(PiiKind) if options.kinds is None else options.kinds.split(",")
    unknown = [name for name in names if name not in list(PiiKind)]
    if unknown:
        raise UsageError(f"--kinds: there is no kind {unknown[0]!r}; there are {', '.join(PiiKind)}")
    params = PiiParams(kinds=tuple(PiiKind(name) for name in names), replacement=options.replacement)
    with _engine() as engine, _input_bar("scrub") as progress:
        outcome = tables.scrub(options.paths, options.out, params, engine, progress)
    counts = outcome.counts
    rows = [("documents", counts["documents"]), ("with PII", counts["documents_with_pii"])]
    report([*rows, *_breakdown("PII", counts, "spans")], outcome)


def _quality(options: argparse.Namespace) -> None:
    from pipeline.stages.language import LANGUAGES
    from pipeline.stages.quality import PROFILES
    from pipeline.steps.files import tables

    if options.profile not in PROFILES:
        raise UsageError(
            f"--profile: there is no profile {options.profile!r}; there are {', '.join(PROFILES)}"
        )
    languages = None if options.languages is None else tuple(options.languages.split(","))
    unknown = sorted(set(languages or ()) - LANGUAGES)
    if unknown:
        raise UsageError(
            f"--languages: {unknown[0]!r} is not a language that can be detected; there are "
            f"{' '.join(sorted(LANGUAGES))}"
        )
    params = PROFILES[options.profile].model_copy(update={"languages": languages})
    with _engine() as engine, _input_bar("quality") as progress:
        outcome = tables.judge(options.paths, options.out, params, engine, progress)
    report(_kept_and_removed(outcome.counts, "rejected"), outcome)


def _dedup(options: argparse.Namespace) -> None:
    from pipeline.stages.dedup import DedupParams
    from pipeline.steps.files import tables

    if not 0 < options.threshold <= 1:
        raise UsageError(f"--threshold {options.threshold}: a similarity is above 0 and at most 1")
    with _engine() as engine, bar("reading") as progress:
        outcome = tables.deduplicate(
            options.paths, options.out, DedupParams(threshold=options.threshold), _Shown(engine), progress
        )
    report(_kept_and_removed(outcome.counts, "removed"), outcome)


@contextmanager
def _engine() -> Iterator[LocalEngine]:
    engine = LocalEngine(processes_pay_above=PROCESSES_PAY_ABOVE)
    try:
        yield engine
    finally:
        engine.close()


class _Shown:
    """An engine that draws a bar for each map, in a terminal."""

    def __init__(self, engine: LocalEngine):
        self._engine = engine

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, input_bytes: int, what: str
    ) -> Iterator[Result]:
        results = self._engine.map(function, tasks, input_bytes=input_bytes, what=what)
        return iter(tqdm(results, desc=what.rpartition("/")[2], total=len(tasks), unit="part", disable=None))


@contextmanager
def bar(name: str) -> Iterator[Callable[[int], object]]:
    with tqdm(desc=name, unit="B", unit_scale=True, disable=None) as bar:
        yield bar.update


@contextmanager
def _input_bar(name: str) -> Iterator[Callable[[int, int], object]]:
    """A bar over the bytes of the input files, so that it knows how much is left."""
    with tqdm(desc=name, unit="B", unit_scale=True, disable=None) as shown:

        def show(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield show


def _kept_and_removed(counts: Mapping[str, int], removed: str) -> list[tuple[str, int]]:
    """`removed`: what the step calls the documents that it does not keep."""
    return [
        ("documents", counts["documents"]),
        ("kept", counts["kept"]),
        *_breakdown("removed", counts, removed),
    ]


def _breakdown(title: str, counts: Mapping[str, int], prefix: str) -> list[tuple[str, int]]:
    """A total and, indented, what it is made of, most frequent first."""
    inside = [
        (name.partition("/")[2], number) for name, number in counts.items() if name.startswith(f"{prefix}/")
    ]
    return [
        (title, counts[prefix]),
        *((f"  {name}", number) for name, number in sorted(inside, key=lambda row: (-row[1], row[0]))),
    ]


def report(rows: Sequence[tuple[str, int]], outcome: "Outcome") -> None:
    set_aside = _breakdown("set aside", outcome.counts, "set_aside")
    for name, number in [*rows, *set_aside]:
        print(f"{name:<32}{number:>14,}")
    megabytes = outcome.counts["text_bytes"] / 1e6
    print(f"\n{megabytes:,.1f} MB of text in {outcome.seconds:.1f} s, {megabytes / outcome.seconds:.1f} MB/s")
    print(f"written: {', '.join(map(str, outcome.files))}")
