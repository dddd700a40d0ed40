"""Dagster's events in SQLite, with the busiest of its files kept open."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as db
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS

_open_each_time = SqliteEventLogStorage._connect


def keep_index_open() -> None:
    """From now on this process opens the index of all runs once. Dagster opens and closes it for every query,
    and SQLite writes its log back each time: a quarter of a run that finds everything up to date. The file of
    a run is still closed after each event, since the UI watches it for changes.
    """
    SqliteEventLogStorage._connect = _connect  # type: ignore[assignment, method-assign]


@contextmanager
def _connect(storage: SqliteEventLogStorage, shard: str) -> Iterator[db.Connection]:
    if shard == INDEX_SHARD_NAME and shard in storage._initialized_dbs:
        with storage._db_lock, _index_of(storage).begin() as connection:
            yield connection
    else:
        with _open_each_time(storage, shard) as connection:
            yield connection


def _index_of(storage: SqliteEventLogStorage) -> db.Engine:
    kept: db.Engine | None = vars(storage).get("_kept_index")
    if kept is None:
        # `_db_lock` keeps threads apart
        options = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
        address = storage.conn_string_for_shard(INDEX_SHARD_NAME)
        kept = db.create_engine(address, poolclass=db.QueuePool, pool_size=1, connect_args=options)
        # A power failure may lose the last events of the index, never the file: sqlite.org/pragma.html
        db.event.listen(kept, "connect", lambda one, _: one.execute("PRAGMA synchronous=NORMAL"))
        vars(storage)["_kept_index"] = kept
    return kept
