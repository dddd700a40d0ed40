"""Runs the user's filters: measures each document, then judges what was measured."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.plugins import Marked, marked
from pipeline.plugins.calling import Failure, WrongLengthError, constructed, documents, failure, tried
from pipeline.plugins.loading import (
    FILTERS,
    RAISED,
    Code,
    PluginError,
    arguments,
    check_arguments,
    load,
    takes_any,
)
from pipeline.plugins.settings import FilterParams

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
class Filter:
    """A filter of a recipe. A class measures and judges in two steps, a function in one."""

    entry: FilterParams

    @cached_property
    def code(self) -> Code:
        return load(FILTERS, self.entry.python)

    def __reduce__(self) -> tuple[Any, ...]:
        return Filter, (self.entry,)  # a worker process loads the code itself

    @property
    def judges_later(self) -> bool:
        return inspect.isclass(self.code)

    @property
    def measured_with(self) -> dict[str, Any]:
        """The parameters that decide what is measured."""
        if not self.judges_later:
            return self.entry.params
        constructor, judge = self.code, self._judge
        taken, judged = arguments(constructor), arguments(judge)[2:]
        return {
            name: value
            for name, value in self.entry.params.items()
            if name in taken or (takes_any(constructor) and name not in judged)
        }

    @property
    def judged_with(self) -> dict[str, Any]:
        """The parameters that `keep` takes, such as thresholds."""
        if not self.judges_later:
            return {}
        judged, measured = arguments(self._judge)[2:], self.measured_with
        return {
            name: value for name, value in self.entry.params.items() if name in judged or name not in measured
        }

    @property
    def identity(self) -> dict[str, Any]:
        """What the verdict depends on, in addition to what was measured."""
        return self.entry.model_dump(include={"name", "python", "version", "params"})

    def check(self) -> None:
        """Raises PluginError when the code cannot be loaded, or does not take these parameters."""
        if not isinstance(self._mark.signals, Mapping):
            raise PluginError(
                f"{self._reference}: `signals` is a dictionary of names and types, such as {{'score': float}}"
            )
        unknown = [kind for kind in self._mark.signals.values() if kind not in SIGNAL_TYPES]
        if unknown:
            raise PluginError(f"{self._reference}: a signal is float, int, bool or str, not {unknown[0]!r}")
        taken = [name for name in self._mark.signals if name in (ID, FAILED, KEEP, REASON)]
        if taken:
            raise PluginError(f"{self._reference}: a signal cannot be called {taken[0]!r}")
        if not self.judges_later:
            check_arguments(self.code, self.entry.params, 1, self._reference)
            return
        missing = [name for name in ("signals", "keep") if not callable(getattr(self.code, name, None))]
        if missing:
            raise PluginError(
                f"{self._reference} has no method {missing[0]!r}: a filter class has `signals` and `keep`"
            )
        if not self._mark.signals:
            raise PluginError(
                f"{self._reference} declares no signals: mark it with @document_filter(signals={{...}}) or "
                "@batch_filter(signals={...})"
            )
        judged = arguments(self._judge)[2:]
        known = [*arguments(self.code), *judged]
        unknown_params = [name for name in self.entry.params if name not in known]
        if unknown_params and not takes_any(self.code) and not takes_any(self._judge):
            raise PluginError(
                f"{self._reference} has no parameter {unknown_params[0]!r}; it has "
                f"{', '.join(known) or 'none'}"
            )
        check_arguments(self.code, self.measured_with, 0, self._reference)
        check_arguments(self._judge, self.judged_with, 2, f"{self._reference}.keep")

    @cached_property
    def schema(self) -> pa.Schema:
        """What is stored of each document: `failed`, the signals, and of a function its verdict."""
        verdict = [] if self.judges_later else [pa.field(KEEP, pa.bool_()), pa.field(REASON, pa.string())]
        return pa.schema(
            [
                pa.field(ID, pa.string(), nullable=False),
                pa.field(FAILED, pa.bool_(), nullable=False),
                *verdict,
                *(pa.field(name, SIGNAL_TYPES[kind]) for name, kind in self._mark.signals.items()),
            ]
        )

    def measure(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Failure]]:
        """A row of `schema` for each document, and those that the code failed on, whose columns are null."""
        if self._mark.one_document:
            return self._measure_each(batch)
        pieces: list[pa.RecordBatch] = []
        failures: list[Failure] = []
        for rows, result in tried(self._measured, batch):
            if isinstance(result, BaseException):
                failures.append(failure(rows, self.entry.name, self.code, result))
                failed = {ID: rows.column("id")[0].as_py(), FAILED: True}
                pieces.append(pa.RecordBatch.from_pylist([failed], schema=self.schema))
            else:
                pieces.append(result)
        return pa.concat_batches(pieces), failures

    def _measure_each(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Failure]]:
        call = self._call()
        rows: list[Columns] = []
        failures: list[Failure] = []
        for number, document in enumerate(documents(batch)):
            try:
                rows.append({**self._of_one(call(document)), ID: document.id, FAILED: False})
            except RAISED as error:
                failures.append(failure(batch.slice(number, 1), self.entry.name, self.code, error))
                rows.append({ID: document.id, FAILED: True})
        return pa.RecordBatch.from_pylist(rows, schema=self.schema), failures

    def judge(self, measured: pa.RecordBatch) -> Verdicts:
        """The verdict on each row that `measure` gave."""
        failed = measured.column(FAILED).to_numpy(zero_copy_only=False).astype(bool)
        if not self.judges_later:
            keep = measured.column(KEEP).fill_null(False).to_numpy(zero_copy_only=False).astype(bool)
            return Verdicts(keep, failed, measured.column(REASON).to_pylist(), [])
        keep, failures = np.zeros(len(failed), bool), []
        rows = np.flatnonzero(~failed)
        start = 0
        for piece, result in tried(self._kept, measured.take(pa.array(rows))) if len(rows) else ():
            where = rows[start : start + piece.num_rows]
            start += piece.num_rows
            if isinstance(result, BaseException):
                failures.append(failure(piece, self.entry.name, self.code, result))
                failed[where] = True
            else:
                keep[where] = result
        return Verdicts(keep, failed, [None] * len(failed), failures)

    @property
    def _reference(self) -> str:
        return self.entry.python

    @property
    def _mark(self) -> Marked:
        return marked(self.code)

    @property
    def _judge(self) -> Code:
        judge: Code = self.code.keep  # type: ignore[attr-defined]
        return judge

    def _call(self) -> Code:
        if not self.judges_later:
            return lambda documents: self.code(documents, **self.entry.params)
        signals: Code = constructed(self.code, self.measured_with, self._reference).signals
        return signals

    def _measured(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """As `measure`, but raises what the code raises, and TypeError for what it should not return."""
        columns = self._columns(self._call()(batch), batch.num_rows)
        columns |= {ID: batch.column("id"), FAILED: np.zeros(batch.num_rows, bool)}
        arrays = [_array(columns[field.name], field, batch.num_rows) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _columns(self, result: Any, rows: int) -> Columns:
        if self.judges_later:
            return self._signals(result)
        keep, reasons, signals = _three(result)
        return {KEEP: keep, REASON: [None] * rows if reasons is None else reasons, **self._signals(signals)}

    def _of_one(self, result: Any) -> Columns:
        """The columns of one document. Raises TypeError."""
        if self.judges_later:
            verdict, signals = {}, self._signals(result)
        else:
            keep, reason, given = _three(result)
            if not isinstance(keep, bool | np.bool_) or not isinstance(reason, str | None):
                raise TypeError(
                    f"{self._reference} returned {result!r:.60}: return True, False, (keep, reason) or "
                    "(keep, reason, signals)"
                )
            if reason is not None:
                reason.encode()  # raises for a lone surrogate, which no file can hold
            verdict, signals = {KEEP: bool(keep), REASON: reason}, self._signals(given)
        for name, value in signals.items():
            _array([value], self.schema.field(name), 1)
        return verdict | signals

    def _signals(self, signals: Any) -> Columns:
        """The signals by name. Raises TypeError when they are not those that are declared."""
        if not isinstance(signals, Mapping):
            raise TypeError(f"{self._reference} returned {signals!r:.60}: signals are a dictionary by name")
        declared = self._mark.signals.keys()
        if odd := sorted(declared ^ signals.keys()):
            what = "did not give the signal" if odd[0] in declared else "does not declare the signal"
            raise TypeError(f"{self._reference} {what} {odd[0]!r}")
        return dict(signals)

    def _kept(self, measured: pa.RecordBatch) -> np.ndarray:
        signals = {
            name: measured.column(name).to_numpy(zero_copy_only=False)
            for name in measured.schema.names
            if name != FAILED
        }
        judge = constructed(self.code, self.measured_with, self._reference).keep
        return np.asarray(
            _array(judge(signals, **self.judged_with), pa.field(KEEP, pa.bool_()), measured.num_rows)
        ).astype(bool)


def _three(result: Any) -> tuple[Any, Any, Any]:
    """Verdict, reason and signals of a function that may return the first one or two alone."""
    values = result if isinstance(result, tuple) and len(result) in (1, 2, 3) else (result,)
    return (*values, *(None, {})[len(values) - 1 :])


def _array(values: Any, field: pa.Field, rows: int) -> pa.Array:
    """The column of a table; raises TypeError when it is too short, of another type, or lacks a value."""
    if isinstance(values, str | bytes):
        raise TypeError(f"{field.name} is a text, not a column of {field.type}")
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        column = pa.array(values)
        column = column if column.type == field.type else column.cast(field.type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TypeError(f"{field.name} is not a column of {field.type}: {error}") from None
    if len(column) != rows:
        raise WrongLengthError(f"{field.name} has {len(column)} values for {rows} documents")
    if column.null_count and field.name != REASON:
        raise TypeError(f"{field.name} is None for a document")
    return column
