"""What one long document costs."""

import subprocess
import sys

import pytest

MEASURED = """
import resource

import pyarrow as pa

from pipeline.stages.quality import measure


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def document(text):
    return pa.record_batch({"id": ["long"], "text": pa.array([text], pa.large_string())})


words = 2_200_000  # just above a power of two: the hash table is as sparse as it gets
long = document(" ".join(f"{number:05x}" for number in range(words)))
measure(document("compiles the kernels"))
before = peak()
measure(long)
print((peak() - before) / long.nbytes)
"""


@pytest.mark.slow
def test_a_long_document_costs_a_small_multiple_of_its_size() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, timeout=120, check=True
    )
    assert float(ended.stdout) < 12  # times its bytes; 16 when every slot of the hash table held a key
