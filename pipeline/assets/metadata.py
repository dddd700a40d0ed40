"""What an asset reports: its data version, and the numbers that an operator needs."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from pipeline.store.manifest import Version, breakdown
from trainer.system.wording import counted

log = logging.getLogger(__name__)


def materialized(
    version: Version,
    metadata: Mapping[str, Any],
    checked: Iterable[dg.AssetCheckResult] = (),
    bytes_on_disk: int | None = None,
) -> dg.MaterializeResult:
    """The result of a stage: rows, bytes, seconds and MB/s of the work that made this version, and whether
    this run reused it. `checked` runs last. `bytes_on_disk` takes the place of the size of its own files, if
    more belongs to it.
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
        # `raw` also has parts without documents: those of the rows that were set aside
        "parts": counts.get("parts", len(version.parts)),
        "bytes on disk": version.bytes if bytes_on_disk is None else bytes_on_disk,
        "path": dg.MetadataValue.path(str(version.path)),
        "dagster/uri": version.store_files.url(version.path),
        **_columns(version),
        "fingerprint": version.fingerprint[:16],
    }
    outcome = "up to date, nothing to do" if version.reused else f"done in {version.seconds:.1f} s"
    totals = [counted(count, name.replace("_", " ")) for name, count in counts.items() if "/" not in name]
    log.info("%s", ", ".join([outcome, *totals]))
    return dg.MaterializeResult(
        metadata=facts, data_version=dg.DataVersion(version.data_version), check_results=list(checked)
    )


def _columns(version: Version) -> dict[str, dg.TableSchema]:
    """The columns of the first table. Not from a bucket, since a whole file would be fetched for them."""
    files = (version.file(part, table) for part in version.parts for table in part.files)
    file = next((one for one in files if one.path.suffix == ".parquet"), None)
    if file is None or version.store_files.shared:
        return {}
    from pyarrow import parquet  # here, because a code location loads no heavy library

    columns = [dg.TableColumn(one.name, str(one.type)) for one in parquet.read_schema(file)]
    return {"dagster/column_schema": dg.TableSchema(columns)}


def breakdown_table(counts: Mapping[str, int], prefix: str, what: str) -> dg.TableMetadataValue:
    """The `breakdown` of counts, of documents or of what is in them, as a table."""
    rows = [{what: name, "count": count} for name, count in breakdown(counts, prefix).items()]
    return table(rows, {what: "string", "count": "int"})


def table(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str] | None = None
) -> dg.TableMetadataValue:
    """Rows by column. `columns`: the types, where there may be no row, or an empty cell in the first."""
    schema = columns and dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns.items()])
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema or None)
