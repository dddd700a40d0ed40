"""Shards of given tokens."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from trainer.data.shard_writer import ShardWriter


def write_shard(prefix: Path, documents: Iterable[Any], dtype: str = "uint16") -> Path:
    with ShardWriter(prefix, np.dtype(dtype)) as writer:
        for document in documents:
            writer.add(np.array(document))
    return prefix
