"""What the commands for plain files share: arguments, progress bar, worker processes, report."""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from tqdm import tqdm

from pipeline.store.engines.local import Engine, LocalEngine
from pipeline.store.errors import PipelineError

if TYPE_CHECKING:
    from pipeline.sources.files import FilesConfig
    from pipeline.steps.plain_files import Results

Task = TypeVar("Task")
Result = TypeVar("Result")

# Bytes of text. Each worker loads the kernels again, and reading, half of the work, is not parallel.
PROCESSES_PAY_ABOVE = 200_000_000
PIPE = "-"  # as a path: standard input or output


class UsageError(PipelineError):
    """An option has an unknown or impossible value."""


def add_in_and_out(parser: argparse.ArgumentParser, out: str) -> None:
    parser.add_argument(
        "paths",
        metavar="IN",
        nargs="+",
        help="files to read: jsonl, json, csv, txt or md, plain or compressed, or parquet; paths or globs; "
        "- and pipes are read as JSON lines",
    )
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help=out)
    parser.add_argument("--text-column", metavar="C", help="the column with the text; default: text")
    parser.add_argument(
        "--id-column", metavar="C", help="the column with the id; default: id, if there is one"
    )


def add_kept(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--documents", action="store_true", help="also write the documents that stay: OUT/documents.parquet"
    )


@contextmanager
def settings_are_options(**other_names: str) -> Iterator[None]:
    """Names an invalid setting by the option of its name, or of one of `other_names`. Raises UsageError."""
    from pydantic import ValidationError

    from trainer.config.problems import requirement

    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        setting = str(first["loc"][0])
        option = other_names.get(setting, setting).replace("_", "-")
        raise UsageError(f"--{option}: {requirement(first)}") from None


@contextmanager
def input_files(options: argparse.Namespace) -> Iterator["FilesConfig"]:
    """The files that a command reads. What comes through a pipe is copied to a file first."""
    from pipeline.sources.files import FilesConfig

    given = {"text_column": options.text_column, "id_column": options.id_column}
    columns = {name: column for name, column in given.items() if column is not None}
    with TemporaryDirectory(prefix="groundwork-") as directory:
        paths = [_file(path, Path(directory) / f"pipe-{n}.jsonl") for n, path in enumerate(options.paths)]
        with settings_are_options():
            files = FilesConfig(paths=tuple(paths), **columns)
        yield files


def _file(path: str, copy: Path) -> str:
    stdin = path in (PIPE, "/dev/stdin")
    if not stdin and not _is_pipe(Path(path)):
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


def _is_pipe(path: Path) -> bool:
    try:
        return path.is_fifo()
    except OSError:
        return False


@contextmanager
def output(options: argparse.Namespace, *tables: str) -> Iterator[Path]:
    """The directory for the results. With `-o -` the first of these tables that is there goes to standard
    output as JSON lines, and what is printed meanwhile to standard error.
    """
    if str(options.out) != PIPE:
        yield options.out
        return
    with TemporaryDirectory(prefix="groundwork-") as directory:
        with redirect_stdout(sys.stderr):
            yield Path(directory)
        files = (Path(directory) / f"{table}.parquet" for table in tables)
        _print_rows(next(file for file in files if file.exists()))


def _print_rows(file: Path) -> None:
    import orjson

    from pipeline.store.parquet import batches

    for batch in batches(file):
        for row in batch.to_pylist():
            fields = orjson.loads(row.pop("metadata", None) or "{}")
            sys.stdout.buffer.write(orjson.dumps({**fields, **row}) + b"\n")
    sys.stdout.flush()


def directory_only(options: argparse.Namespace) -> None:
    """Raises UsageError for `-o -`."""
    if str(options.out) == PIPE:
        raise UsageError("--out -: the result is a directory of several files; name one")


@contextmanager
def worker_processes() -> Iterator[Engine]:
    """An engine that shows a progress bar for each map in a terminal."""
    engine = LocalEngine(processes_pay_above=PROCESSES_PAY_ABOVE)
    try:
        yield _WithBars(engine)
    finally:
        engine.close()


class _WithBars:
    def __init__(self, engine: LocalEngine):
        self._engine = engine
        self.apart = engine.apart

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, input_bytes: int, what: str
    ) -> Iterator[Result]:
        results = self._engine.map(function, tasks, input_bytes=input_bytes, what=what)
        return iter(tqdm(results, desc=what.rpartition("/")[2], total=len(tasks), unit="part", disable=None))


@contextmanager
def progress_bar() -> Iterator[Callable[[int], object]]:
    """A progress bar in bytes of text; call the function with the bytes of what was read."""
    with tqdm(desc="reading", unit="B", unit_scale=True, disable=None) as bar:
        yield bar.update


def report(rows: Sequence[tuple[str, int]], outcome: "Results", out: Path) -> None:
    """Prints the numbers, what was set aside and why, the throughput and the paths of the written files."""
    for name, number in [*rows, *breakdown("set aside", outcome.counts, "set_aside")]:
        print(f"{name:<32}{number:>14,}")
    megabytes = outcome.counts["text_bytes"] / 1e6
    print(f"\n{megabytes:,.1f} MB of text in {outcome.seconds:.1f} s, {megabytes / outcome.seconds:.1f} MB/s")
    if str(out) != PIPE:
        print(f"written: {', '.join(map(str, outcome.files))}")


def report_removed(outcome: "Results", removed: str, out: Path) -> None:
    """Reports kept and removed documents. `removed` is the name of the count of removed ones."""
    counts = outcome.counts
    kept = [("documents", counts["documents"]), ("kept", counts["kept"])]
    report([*kept, *breakdown("removed", counts, removed)], outcome, out)


def breakdown(title: str, counts: Mapping[str, int], prefix: str) -> list[tuple[str, int]]:
    """A total, and indented below it its parts, most frequent first."""
    parts = [
        (name.partition("/")[2], number) for name, number in counts.items() if name.startswith(f"{prefix}/")
    ]
    return [
        (title, counts[prefix]),
        *((f"  {name}", number) for name, number in sorted(parts, key=lambda row: (-row[1], row[0]))),
    ]
