"""What a run writes down as it goes: metrics.jsonl, the truth; TensorBoard, for looking."""

import json
import os
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from trainer.system.durable import read_json_lines

# What depends on the machine and the moment; every other field is the same in a run that was interrupted.
TIMING_FIELDS = ("tokens_per_second", "step_ms", "data_wait_ms", "mfu", "memory_mb")


class MetricsLog:
    """Appends to metrics.jsonl. Opened on a resumed run, it first forgets what came after the `resumed_bytes`
    that the checkpoint vouches for.
    """

    def __init__(self, path: Path, tensorboard: Path, resumed_step: int, resumed_bytes: int) -> None:
        self._path = path
        self._file = path.open("a", encoding="utf-8")
        self._file.truncate(min(resumed_bytes, self._file.tell()))
        # `tell` would still say how long it was, and so would the next checkpoint
        self._file.seek(0, os.SEEK_END)
        self._tensorboard = SummaryWriter(str(tensorboard), purge_step=resumed_step + 1)

    def close(self) -> None:
        self._file.close()
        self._tensorboard.close()

    def records(self) -> list[dict[str, Any]]:
        """All of them, read back: a long run does not hold them in memory."""
        self._file.flush()
        return read_json_lines(self._path)

    def write(self, record: dict[str, Any]) -> None:
        """`record` has `kind` and `step`; its other numbers become curves named `<kind>/<field>`."""
        self._file.write(json.dumps(record) + "\n")
        for field, value in record.items():
            if field not in ("kind", "step", "tokens") and isinstance(value, int | float):
                self._tensorboard.add_scalar(f"{record['kind']}/{field}", value, record["step"])

    def write_text(self, tag: str, text: str, step: int) -> None:
        self._tensorboard.add_text(tag, text, step)

    def sync(self) -> int:
        """Makes the lines durable and says how many bytes they are: a checkpoint must not know more than
        its metrics.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._tensorboard.flush()
        return self._file.tell()
