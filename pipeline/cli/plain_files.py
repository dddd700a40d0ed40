"""What the commands for plain files share: arguments, worker processes, report."""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from pydantic import ValidationError

from pipeline.cli.opening import UsageError
from pipeline.reports import tables
from pipeline.sources.files import FilesConfig
from pipeline.steps.plain_files import Read, Results
from pipeline.store.engines.local import LocalEngine
from pipeline.store.manifest import breakdown
from pipeline.store.parquet import batches
from trainer.config.problems import requirement
from trainer.system import terminal

# Bytes of text. Each worker loads the kernels again, and reading, half of the work, is not parallel.
PROCESSES_PAY_ABOVE = 200_000_000
PIPE = "-"  # as a path: standard input or output
Rows = Sequence[tuple[str, int]]


def add_in_and_out(parser: argparse.ArgumentParser, out: str = "the directory to create") -> None:
    parser.add_argument(
        "paths",
        metavar="IN",
        nargs="+",
        help="files to read: json, csv, txt, md, html, epub, docx, pptx, odt, ipynb, mail (also compressed), "
        "parquet; paths or globs; - and pipes are read as JSON lines",
    )
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help=out)
    parser.add_argument("--text-column", metavar="C", help="the column with the text; default: text")
    parser.add_argument(
        "--id-column", metavar="C", help="the column with the id; default: id, if there is one"
    )
    parser.add_argument(
        "--separator",
        metavar="S",
        help="the character between the fields of CSV; default: a comma, in .tsv files a tab",
    )
    parser.add_argument(
        "--encoding", metavar="E", help="the encoding of all but Parquet files; default: utf-8"
    )


def add_kept_and_out(parser: argparse.ArgumentParser) -> None:
    add_in_and_out(parser, "the directory for the results, or - for JSON lines on standard output")
    parser.add_argument(
        "--documents", action="store_true", help="also write the documents that stay: OUT/documents.parquet"
    )


@contextmanager
def settings_are_options(**other_names: str) -> Iterator[None]:
    """Names an invalid setting by the option of its name, or of one of `other_names`. Raises UsageError."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        setting = str(first["loc"][0])
        option = other_names.get(setting, setting).replace("_", "-")
        raise UsageError(f"--{option}: {requirement(first)}") from None


@contextmanager
def input_files(options: argparse.Namespace) -> Iterator[tuple[FilesConfig, Read]]:
    """The files that a command reads, with a progress bar. A pipe is copied to a file first."""
    names = ("text_column", "id_column", "separator", "encoding")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    reading = terminal.doing(f"reading {', '.join(options.paths)}")
    with TemporaryDirectory(prefix="groundwork-") as directory, reading as bar:
        paths = [_file(path, Path(directory) / f"pipe-{n}.jsonl") for n, path in enumerate(options.paths)]
        with settings_are_options():
            files = FilesConfig(paths=tuple(paths), **given)
        yield files, bar.counter("bytes")


def _file(path: str, copy: Path) -> str:
    stdin = path in (PIPE, "/dev/stdin")
    try:
        if not stdin and not Path(path).is_fifo():
            return path
    except OSError:  # a name that is too long
        return path
    try:
        with (
            nullcontext(sys.stdin.buffer) if stdin else Path(path).open("rb") as source,
            copy.open("wb") as file,
        ):
            shutil.copyfileobj(source, file)
    except OSError as error:
        raise UsageError(f"{path} cannot be copied to {copy.parent} ({error.strerror or error})") from error
    return str(copy)


def make_tables(
    options: argparse.Namespace,
    make: Callable[..., Results],
    rows: Callable[[Mapping[str, int]], Rows],
    *printed: str,
) -> None:
    """Calls `make(files, out, engine, progress)`, with worker processes, and reports `rows` of its counts.
    With `-o -` the first of the `printed` tables that is there goes to standard output as JSON lines, and
    what is said meanwhile to standard error.
    """
    piped = str(options.out) == PIPE
    engine = LocalEngine(processes_pay_above=PROCESSES_PAY_ABOVE)
    try:
        with TemporaryDirectory(prefix="groundwork-") as temporary:
            out = Path(temporary) if piped else options.out
            with redirect_stdout(sys.stderr if piped else sys.stdout):
                with input_files(options) as (files, progress):
                    outcome = make(files, out, engine=engine, progress=progress)
                report(rows(outcome.counts), outcome, named=not piped)
            if piped:
                written = {path.stem: path for path in outcome.files}
                _print_rows(next(written[table] for table in printed if table in written))
    finally:
        engine.close()


def _print_rows(file: Path) -> None:
    for batch in batches(file):
        for row in batch.to_pylist():
            fields = orjson.loads(row.pop("metadata", None) or "{}")
            sys.stdout.buffer.write(orjson.dumps({**fields, **row}) + b"\n")
    sys.stdout.flush()


def make_directory(
    options: argparse.Namespace,
    make: Callable[[FilesConfig, Path, Read], Results],
    rows: Callable[[Mapping[str, int]], Rows],
) -> None:
    """Calls `make(files, out, progress)` and reports `rows` of its counts. Raises UsageError for `-o -`."""
    if str(options.out) == PIPE:
        raise UsageError("--out -: the result is a directory of several files; name one")
    with input_files(options) as (files, progress):
        outcome = make(files, options.out, progress)
    report(rows(outcome.counts), outcome)


def report(rows: Rows, outcome: Results, named: bool = True) -> None:
    """Prints the numbers, what was set aside and why, the throughput and, if `named`, the written files."""
    print("\n".join(tables.counts([*rows, *total_and_parts("set aside", outcome.counts, "set_aside")])))
    megabytes = outcome.counts["text_bytes"] / 1e6
    print(f"\n{megabytes:,.1f} MB of text in {outcome.seconds:.1f} s, {megabytes / outcome.seconds:.1f} MB/s")
    if named:
        print(f"written: {', '.join(map(str, outcome.files))}")


def kept_and_removed(removed: str) -> Callable[[Mapping[str, int]], Rows]:
    """The kept and the removed documents. `removed` is the name of the count of removed ones."""
    return lambda counts: [
        ("documents", counts["documents"]),
        ("kept", counts["kept"]),
        *total_and_parts("removed", counts, removed),
    ]


def total_and_parts(title: str, counts: Mapping[str, int], prefix: str) -> list[tuple[str, int]]:
    """A total, and indented below it its parts, most frequent first."""
    return [
        (title, counts[prefix]),
        *((f"  {name}", number) for name, number in breakdown(counts, prefix).items()),
    ]
