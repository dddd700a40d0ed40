"""What Dagster does not export and the pipeline needs, each name with what it is for. Everything else of
Dagster comes from its public API. A test holds each name to the shape that is relied on.
"""

from dagster import DagsterInstance

# patched: the terminal log of a run that chooses no logger
from dagster import _loggers as default_loggers

# what `dagster asset materialize --select` raises for a selection that it cannot read
from dagster._core.definitions.asset_selection import DagsterInvalidAssetSelectionError

# patched: what a step prints must be shown until the step has said what it saved
from dagster._core.execution import compute_logs

# a run that was started in a terminal needs an origin, or the UI's first page leaves it out
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

# patched: the index of all runs stays open; `forget` has to vacuum what SQLite deletes
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage

# no method of an instance changes the body of a run, or removes a tag
from dagster._core.storage.legacy_storage import LegacyRunStorage
from dagster._core.storage.runs import SqlRunStorage
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable

# patched: says whether a run that failed outside its steps is started again
should_retry_run = DagsterInstance._should_retry_run
