"""Hashes of content, and fingerprints of the work that makes it."""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

READ_SIZE = 1 << 20
HASH_SHOWN = 12  # characters


def canonical_json(value: Any) -> str:
    """The same text for the same value: keys sorted, no spaces, ASCII. Raises TypeError on anything without a
    stable encoding (sets, paths, NaN).
    """
    return json.dumps(_stable(value, "value"), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _stable(value: Any, where: str) -> Any:
    if isinstance(value, BaseModel):
        return _stable(value.model_dump(), where)
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise TypeError(f"{where} is {value}, which has no stable encoding")
        return value
    if isinstance(value, list | tuple):
        return [_stable(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise TypeError(f"{where} has keys that are not text: {wrong[:3]}")
        return {key: _stable(item, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(f"{where} is a {type(value).__name__}, which has no stable encoding")


def fingerprint(value: Any) -> str:
    """sha256 over the canonical JSON of `value`, hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def combined(hashes: Iterable[str]) -> str:
    """One hash for an ordered sequence of hashes, hex."""
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def file_sha256(path: Path, size: int | None = None) -> str:
    """The sha256, in hex, of a file's first `size` bytes or, without a size, of those that it has when it is
    opened, whatever is appended meanwhile.
    """
    digest, block = hashlib.sha256(), memoryview(bytearray(READ_SIZE))
    with path.open("rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size if size is None else size
        while left and (read := file.readinto(block[:left])):
            digest.update(block[:read])
            left -= read
    return digest.hexdigest()
