"""Runs the user's filters: measures each document, then judges what was measured."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.plugins.calling import Failure, UserCode, column, documents
from pipeline.plugins.loading import RAISED, Code, PluginError, arguments, check_arguments, described
from pipeline.plugins.settings import FastTextParams
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import canonical_json

SIGNAL_TYPES = {float: pa.float64(), int: pa.int64(), bool: pa.bool_(), str: pa.string()}
ID, FAILED, KEEP, REASON = "id", "failed", "keep", "reason"  # the columns other than signals
Columns = dict[str, Any]


@dataclass(frozen=True)
class Verdicts:
    """Row by row: whether a filter keeps the document, why not, and whether its code failed on it."""

    keep: np.ndarray
    failed: np.ndarray
    reasons: list[str | None]
    failures: list[Failure]


@dataclass(frozen=True)
class Filter(UserCode):
    """A filter of a recipe. A class measures and judges in two steps, a function in one."""

    @property
    def judges_later(self) -> bool:
        return inspect.isclass(self.code)

    @property
    def measured_with(self) -> dict[str, Any]:
        """The parameters that decide what is measured: of a class, those that `keep` alone does not take."""
        if not self.judges_later:
            return self.entry.params
        constructor, judge = arguments(self.code), arguments(self._judge)[2:]
        return {n: value for n, value in self.entry.params.items() if n in constructor or n not in judge}

    @property
    def judged_with(self) -> dict[str, Any]:
        """The parameters that `keep` takes, such as thresholds."""
        judge = arguments(self._judge)[2:]
        return {name: value for name, value in self.entry.params.items() if name in judge}

    @property
    def identity(self) -> dict[str, Any]:
        """A classifier is known by what it measured, wherever its file lies."""
        if isinstance(self.entry, FastTextParams):
            return {"name": self.entry.name, "python": self.entry.python, "params": self.judged_with}
        return super().identity

    def check(self) -> None:
        """Raises PluginError when the code cannot be loaded, or does not take these parameters."""
        reference = self.entry.python
        if not self.judges_later:
            if self.mark.signals:
                raise PluginError(f"{reference} is a function: only a class gives signals")
            check_arguments(self.code, self.entry.params, 1, reference)
            return
        missing = [name for name in ("signals", "keep") if not callable(getattr(self.code, name, None))]
        if missing:
            raise PluginError(
                f"{reference} has no method {missing[0]!r}: a filter class has `signals` and `keep`"
            )
        if not self.mark.signals:
            raise PluginError(
                f"{reference} declares no signals: mark it with @document_filter(signals={{...}}) or "
                "@batch_filter(signals={...})"
            )
        known = [*arguments(self.code), *arguments(self._judge)[2:]]
        check_arguments(self.code, self.measured_with, 0, reference, known)
        check_arguments(self._judge, self.judged_with, 2, f"{reference}.keep")

    @property
    def schema(self) -> pa.Schema:
        """The columns that are stored: `id`, `failed`, the signals of a class, the verdict of a function."""
        verdict = [] if self.judges_later else [pa.field(KEEP, pa.bool_()), pa.field(REASON, pa.string())]
        return pa.schema(
            [
                pa.field(ID, pa.string(), nullable=False),
                pa.field(FAILED, pa.bool_(), nullable=False),
                *verdict,
                *(pa.field(name, SIGNAL_TYPES[kind]) for name, kind in self.mark.signals.items()),
            ]
        )

    def measure(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Failure]]:
        """A row of `schema` for each document, and those that the code failed on, whose columns are null."""
        pieces: list[pa.RecordBatch] = []
        failures: list[Failure] = []
        for _, result in self.outcomes(self._measured, batch, self.mark.one_document):
            if isinstance(result, Failure):
                failures.append(result)
                result = pa.RecordBatch.from_pylist([{ID: result.id, FAILED: True}], schema=self.schema)
            pieces.append(result)
        return pa.concat_batches(pieces), failures

    def judge(self, measured: pa.RecordBatch) -> Verdicts:
        """The verdict on each row that `measure` gave."""
        failed = measured.column(FAILED).to_numpy(zero_copy_only=False).astype(bool)
        if not self.judges_later:
            keep = measured.column(KEEP).fill_null(False).to_numpy(zero_copy_only=False).astype(bool)
            return Verdicts(keep, failed, measured.column(REASON).to_pylist(), [])
        keep, failures = np.zeros(len(failed), bool), []
        rows = np.flatnonzero(~failed)
        start = 0
        for piece, result in self.outcomes(self._kept, measured.take(pa.array(rows))) if len(rows) else ():
            where = rows[start : start + piece.num_rows]
            start += piece.num_rows
            if isinstance(result, Failure):
                failures.append(result)
                failed[where] = True
            else:
                keep[where] = result
        return Verdicts(keep, failed, [None] * len(failed), failures)

    @property
    def _judge(self) -> Code:
        return self.code.keep  # type: ignore[attr-defined]

    def _measured(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Measures as `measure` does. Raises what the code raises, and TypeError for a wrong return value."""
        each = documents(batch) if self.mark.one_document else None
        columns: Columns = {ID: batch.column("id"), FAILED: np.zeros(batch.num_rows, bool)}
        if self.judges_later:
            measure = self._constructed().signals
            if each is None:
                columns |= self._signals(measure(batch))
            else:
                signals = [self._signals(measure(document)) for document in each]
                columns |= {name: [values[name] for values in signals] for name in self.mark.signals}
        elif each is None:
            keep, reasons = _verdict_and_reason(self.code(batch, **self.entry.params))
            columns |= {KEEP: keep, REASON: [None] * batch.num_rows if reasons is None else reasons}
        else:
            verdicts = [self._verdict(self.code(document, **self.entry.params)) for document in each]
            columns |= {KEEP: [keep for keep, _ in verdicts], REASON: [reason for _, reason in verdicts]}
        arrays = [
            column(columns[field.name], field.with_nullable(field.name == REASON), batch.num_rows)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _verdict(self, result: Any) -> tuple[bool, str | None]:
        keep, reason = _verdict_and_reason(result)
        if not isinstance(keep, bool | np.bool_) or not isinstance(reason, str | None):
            shown = type(result).__name__ if isinstance(result, str | bytes) else f"{result!r:.60}"
            raise TypeError(f"{self.entry.python} returned {shown}: return True, False, or (keep, reason)")
        return bool(keep), reason

    def _signals(self, signals: Any) -> Columns:
        """The signals by name. Raises TypeError when they are not those that are declared."""
        if not isinstance(signals, Mapping):
            raise TypeError(f"{self.entry.python} returned {signals!r:.60}: signals are a dictionary by name")
        declared = self.mark.signals.keys()
        if odd := sorted(declared ^ signals.keys()):
            what = "did not give the signal" if odd[0] in declared else "does not declare the signal"
            raise TypeError(f"{self.entry.python} {what} {odd[0]!r}")
        return dict(signals)

    def _kept(self, measured: pa.RecordBatch) -> np.ndarray:
        signals = {
            name: measured.column(name).to_numpy(zero_copy_only=False)
            for name in measured.schema.names
            if name != FAILED
        }
        kept = self._constructed().keep(signals, **self.judged_with)
        field = pa.field(KEEP, pa.bool_(), nullable=False)
        return np.asarray(column(kept, field, measured.num_rows)).astype(bool)

    def _constructed(self) -> Any:
        return constructed(self.code, canonical_json(self.measured_with), self.entry.python)


@lru_cache(maxsize=16)
def constructed(code: Code, params: str, reference: str) -> Any:
    """The object of a class, made once in each process; `params` is JSON."""
    try:
        return code(**json.loads(params))
    except PipelineError as error:
        raise PluginError(str(error)) from None
    except RAISED as error:
        raise PluginError(f"{reference} cannot be constructed: {described(error, code.__module__)}") from None


def _verdict_and_reason(result: Any) -> tuple[Any, Any]:
    """The verdict and the reason that a function returned. It may have returned the verdict alone."""
    return result if isinstance(result, tuple) and len(result) == 2 else (result, None)
