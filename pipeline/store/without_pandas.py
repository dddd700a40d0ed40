"""pyarrow without pandas, in worker processes.

pyarrow asks of what becomes an array whether pandas made it. It asks once, and imports pandas for that, which
is a third of a worker's start.
"""

import multiprocessing
import sys

import pyarrow as pa


class _Absent:
    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError(name)


def leave_out() -> None:
    """Until `bring_in`, pyarrow takes columns of pandas for lists: what is missing in them is no null."""
    sys.meta_path.insert(0, _Absent)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(_Absent)


def bring_in() -> None:
    """For code that is not ours."""
    if multiprocessing.parent_process() is not None:
        pa.array([]).to_pandas()
