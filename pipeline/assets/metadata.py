"""What an asset reports: its data version, and the numbers that an operator needs."""

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import dagster as dg

from pipeline.reports import breakdowns
from pipeline.reports.images import inline
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version

log = logging.getLogger(__name__)


class StoppedError(dg.DagsterExecutionInterruptedError):
    """Somebody stopped the run; the message says what is saved."""


Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")


def asset_key(key: str) -> dg.AssetKey:
    """Dagster's key of the asset that the store keeps under `key`."""
    return dg.AssetKey(key.split("/"))


def materialized(
    version: Version,
    metadata: Mapping[str, Any],
    checked: Iterable[dg.AssetCheckResult] = (),
    bytes_on_disk: int | None = None,
) -> dg.MaterializeResult:
    """The result of a stage: rows, bytes, seconds and MB/s of the work that made this version, and whether
    this run reused it. The checks in `checked` run last. `bytes_on_disk`: when more belongs to the version
    than its own files.
    """
    counts = version.counts
    facts = dict(metadata)
    if "documents" in counts:
        facts["dagster/row_count"] = counts["documents"]
    if "text_bytes" in counts:
        facts["text bytes"] = counts["text_bytes"]
        facts["MB/s"] = round(counts["text_bytes"] / 1e6 / max(version.seconds, 1e-3), 1)
    facts |= {
        "seconds": version.seconds,
        "reused": version.reused,
        "parts": len(version.parts),
        "bytes on disk": version.bytes if bytes_on_disk is None else bytes_on_disk,
        "path": dg.MetadataValue.path(str(version.path)),
        "fingerprint": version.fingerprint[:16],
    }
    outcome = "up to date, nothing to do" if version.reused else f"done in {version.seconds:.1f} s"
    totals = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if "/" not in name]
    log.info("%s", ", ".join([outcome, *totals]))
    return dg.MaterializeResult(
        metadata=facts, data_version=dg.DataVersion(version.data_version), check_results=list(checked)
    )


def breakdown(counts: Mapping[str, int], prefix: str, what: str) -> dg.TableMetadataValue:
    """The counts named `prefix/...` as a table, most frequent first."""
    rows = sorted(
        ((name.partition("/")[2], count) for name, count in counts.items() if name.startswith(f"{prefix}/")),
        key=lambda row: -row[1],
    )
    columns = [dg.TableColumn(what, "string"), dg.TableColumn("documents", "int")]
    return dg.MetadataValue.table(
        [dg.TableRecord({what: name, "documents": count}) for name, count in rows], dg.TableSchema(columns)
    )


def chart(version: Version, prefix: str, title: str) -> dict[str, dg.MarkdownMetadataValue]:
    """The counts named `prefix/...` as a picture called `title`, if there are any."""
    png = breakdowns.bars(version, prefix, title)
    return {title: inline(png, title)} if png else {}


def with_code_reference(
    asset: dg.AssetsDefinition, made_by: Callable[..., Any] | None = None
) -> dg.AssetsDefinition:
    """Names the file and line of the function `made_by`, to which the UI links; else those of the asset's own
    function, unless others are named. Dagster's own `with_source_code_references` would name the file of the
    function's decorator.
    """
    if not made_by and any("dagster/code_references" in spec.metadata for spec in asset.specs):
        return asset
    function = made_by or inspect.unwrap(asset.op.compute_fn.decorated_fn)  # type: ignore[union-attr]
    code = function.__code__
    place = dg.LocalFileCodeReference(file_path=code.co_filename, line_number=code.co_firstlineno)
    found = {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[place])}
    return asset.map_asset_specs(lambda spec: spec.merge_attributes(metadata=found))


def user_errors_as_failures(function: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """Makes a mistake that the user can correct a failure of the step, with its message and no retry. Says of
    a step that somebody stopped what becomes of its work.
    """

    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Outcome:
        try:
            return function(*args, **kwargs)
        except PipelineError as error:
            raise dg.Failure(str(error), allow_retries=False) from None
        except dg.DagsterExecutionInterruptedError as stopped:
            _cancel_if_started_in_a_terminal()
            if isinstance(stopped, StoppedError):
                raise
            raise StoppedError("stopped: what is complete is kept, run the job again to resume") from None

    return run


def _cancel_if_started_in_a_terminal() -> None:
    """Ctrl-C is the wish of a person, as Terminate is in the UI. Dagster would count the run as failed."""
    context = dg.OpExecutionContext.get()
    if context.run.remote_job_origin is None:
        context.instance.report_run_canceling(context.run)
