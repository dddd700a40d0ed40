"""Dagster's storages, where it lacks something: files of events that stay open, tags that go."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import sqlalchemy as db

from pipeline.dagster_internals import (
    INDEX_SHARD_NAME,
    LegacyRunStorage,
    RunsTable,
    RunTagsTable,
    SqliteEventLogStorage,
    SqlRunStorage,
)

BUSY_SECONDS = 30  # that a query waits for another process, as with Dagster's own connections
_open_each_time = SqliteEventLogStorage._connect


def keep_logs_open() -> None:
    """Makes this process open the index of all runs once, and the file of its own run once. Dagster opens
    and closes a file for every query, and SQLite writes its log back to the disk each time: a fifth of a run
    that finds everything up to date.
    """
    SqliteEventLogStorage._connect = _connect  # type: ignore[assignment, method-assign]


@contextmanager
def _connect(storage: SqliteEventLogStorage, shard: str) -> Iterator[db.Connection]:
    if shard not in storage._initialized_dbs:
        with _open_each_time(storage, shard) as connection:
            yield connection
        return
    with storage._db_lock:
        with _kept(storage, shard).begin() as connection:
            before = _changes(connection)
            yield connection
            changed = _changes(connection) > before
        if changed and shard != INDEX_SHARD_NAME:
            # The UI watches the file of a run, and new events are in the log beside it for now.
            Path(storage.path_for_shard(shard)).touch()


def _changes(connection: db.Connection) -> int:
    """How many rows a connection has written since it was opened."""
    return connection.connection.dbapi_connection.total_changes  # type: ignore[union-attr]


def _kept(storage: SqliteEventLogStorage, shard: str) -> db.Engine:
    """The open file of a shard: that of the index, or of the run that was asked for last."""
    kept: dict[str, db.Engine] = vars(storage).setdefault("_kept", {})
    if shard not in kept:
        for other in kept.keys() - {INDEX_SHARD_NAME}:
            kept.pop(other).dispose()
        # `_db_lock` keeps threads apart
        options = {"timeout": BUSY_SECONDS, "check_same_thread": False}
        address = storage.conn_string_for_shard(shard)
        kept[shard] = db.create_engine(address, poolclass=db.QueuePool, pool_size=1, connect_args=options)
        # A power failure may lose the last events, never the file: sqlite.org/pragma.html
        db.event.listen(kept[shard], "connect", lambda one, _: one.execute("PRAGMA synchronous=NORMAL"))
    return kept[shard]


def remove_run_tag(instance: dg.DagsterInstance, run_id: str, tag: str) -> None:
    """Removes a tag of a run; Dagster can only add tags. Does nothing in a storage without tables."""
    storage, run = _tables(instance), instance.get_run_by_id(run_id)
    if run is None or storage is None:
        return
    write(instance, run.with_tags({name: value for name, value in run.tags.items() if name != tag}))
    with storage.connect() as connection:
        of_tag = db.and_(RunTagsTable.c.run_id == run_id, RunTagsTable.c.key == tag)
        connection.execute(RunTagsTable.delete().where(of_tag))


def write(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Replaces what is stored of a run. Does nothing in a storage without tables."""
    if storage := _tables(instance):
        row = RunsTable.c.run_id == run.run_id
        with storage.connect() as connection:
            connection.execute(RunsTable.update().where(row).values(run_body=dg.serialize_value(run)))


def _tables(instance: dg.DagsterInstance) -> SqlRunStorage | None:
    storage = instance.run_storage
    if isinstance(storage, LegacyRunStorage):  # as with Postgres
        storage = storage._storage.run_storage
    return storage if isinstance(storage, SqlRunStorage) else None
