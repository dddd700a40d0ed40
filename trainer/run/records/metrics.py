"""A run's metrics: metrics.jsonl, for resuming and reports; TensorBoard and other trackers, for people."""

import json
import math
import os
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from trainer.run.records.trackers import Trackers
from trainer.system.durable import read_json_lines


class MetricsLog:
    """The metrics of a run, in metrics.jsonl and as curves. A resumed run first truncates the file to
    `resumed_bytes`, its length at the checkpoint. With `redraws`, TensorBoard gets the curves up to there
    again, as another run computed them.
    """

    def __init__(
        self,
        path: Path,
        tensorboard: Path,
        *,
        resumed_step: int,
        resumed_bytes: int,
        trackers: Trackers | None = None,
        redraws: bool = False,
    ) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._file.truncate(min(resumed_bytes, self._file.tell()))
        # `tell` would still return the old length, and the next checkpoint would store it.
        self._file.seek(0, os.SEEK_END)
        self._tensorboard = SummaryWriter(str(tensorboard), purge_step=1 if redraws else resumed_step + 1)
        for record in read_json_lines(path) if redraws else ():
            self._draw(record)
        self._trackers = trackers

    def close(self) -> None:
        self._file.close()
        self._tensorboard.close()

    def write(self, record: dict[str, Any]) -> None:
        """Appends a record with `kind` and `step`; its other numbers become curves named `<kind>/<field>`.

        A number that is not finite, as in a step that fp16 skipped, is null, since JSON cannot hold it.
        """
        self._file.write(json.dumps(_finite(record), allow_nan=False) + "\n")
        numbers = self._draw(record)
        if self._trackers is not None:
            tokens = {"tokens": record["tokens"]} if "tokens" in record else {}
            self._trackers.log(
                {name: float(value) for name, value in (numbers | tokens).items()}, record["step"]
            )

    def _draw(self, record: dict[str, Any]) -> dict[str, int | float]:
        """Adds the numbers of a record to TensorBoard's curves, and returns them by the curves' names."""
        numbers = {
            f"{record['kind']}/{field}": value
            for field, value in record.items()
            if field not in ("kind", "step", "tokens") and isinstance(value, int | float)
        }
        # What add_scalar writes, in one event: handing events to the writing thread is what takes time.
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in numbers.items()]
        self._tensorboard.file_writer.add_summary(Summary(value=values), record["step"])
        return numbers

    def write_text(self, tag: str, text: str, step: int) -> None:
        self._tensorboard.add_text(tag, text, step)

    def flush(self) -> None:
        self._file.flush()

    def sync(self) -> int:
        """Makes the lines durable and returns their length in bytes for the checkpoint."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._tensorboard.flush()
        return self._file.tell()


def _finite(value: Any) -> Any:
    """The value with None for each number in it that is not finite."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
