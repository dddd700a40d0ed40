"""Memory does not grow with what a file unpacks to."""

import gzip
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.sources import open_source
from pipeline.sources.documents import BATCH_BYTES
from pipeline.sources.files import FilesConfig

# Linux passes the `ru_maxrss` of the parent on, and not VmHWM.
READ = """
import sys
from pathlib import Path
from pipeline.sources import open_source
from pipeline.sources.files import FilesConfig
source, rejects = open_source("c", FilesConfig(paths=(sys.argv[1],))), []
def most():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
started = most()
rows = sum(batch.num_rows for unit in source.units() for batch in source.read(unit, rejects))
print(rows, *[str(r.reason) for r in rejects])
print(most() - started)
"""


def repeated_texts(path: Path, rows: int) -> Path:
    """Texts of 20 KB that the file holds once each, behind short ones."""
    long = [f"{number} " + "word " * 4_000 for number in range(5)]
    texts = [*["short"] * 1_000, *(long[row % 5] for row in range(rows))]
    pq.write_table(pa.table({"text": texts}), path / "a.parquet")
    return path / "a.parquet"


def one_object(path: Path) -> Path:
    with gzip.open(path / "a.jsonl.gz", "wb", 1) as file:
        file.write(b'{"text": "before"}\n{"text": "')
        for _ in range(500):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n{"text": "after"}\n')
    return path / "a.jsonl.gz"


def one_line(path: Path) -> Path:
    with gzip.open(path / "a.csv.gz", "wb", 1) as file:
        file.write(b"text\nbefore\n")
        for _ in range(200):
            file.write(b"xyz," * 250_000)
        file.write(b"\nafter\n")
    return path / "a.csv.gz"


def one_row_group(path: Path) -> Path:
    """500 MB that hardly pack, in one row group."""
    texts = [random.Random(number).randbytes(5_000).hex() for number in range(60)]
    column = pa.DictionaryArray.from_arrays(pa.array([row % 60 for row in range(50_000)]), pa.array(texts))
    table = pa.table({"text": column.cast(pa.large_string())})
    pq.write_table(table, path / "a.parquet", row_group_size=50_000, use_dictionary=False, compression="none")
    return path / "a.parquet"


def quoted_lines(path: Path) -> Path:
    with gzip.open(path / "a.csv.gz", "wb", 1) as file:
        file.write(b'text\nbefore\n"')
        for _ in range(70):
            file.write((b"x" * 10_000 + b"\r\n") * 100)
    return path / "a.csv.gz"


def test_texts_that_a_parquet_file_holds_once_come_in_batches_of_the_usual_size(tmp_path: Path) -> None:
    path = repeated_texts(tmp_path, 2_000)
    assert path.stat().st_size < 10_000
    source = open_source("c", FilesConfig(paths=(str(path),)))
    sizes = [batch.nbytes for unit in source.units() for batch in source.read(unit, [])]
    assert sum(sizes) > 40_000_000 and max(sizes) < 4 * BATCH_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: repeated_texts(path, 30_000), "31000"),
        (one_object, "2 too_long"),
        (one_line, "2 too_long"),
        (quoted_lines, "1 too_long"),
        (one_row_group, "50000"),
    ],
    ids=["repeated texts", "one object", "one line", "quoted lines", "one row group"],
)
def test_a_small_file_that_unpacks_to_gigabytes_costs_a_bounded_memory(
    tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(make(tmp_path))], capture_output=True, text=True, check=True
    )
    found, kilobytes = done.stdout.splitlines()
    assert found == said
    assert int(kilobytes) < 400_000
