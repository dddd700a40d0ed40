"""Dagster's storages, where it lacks something: an index of events that stays open, tags that go."""

from collections.abc import Iterator
from contextlib import contextmanager

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
        options = {"timeout": BUSY_SECONDS, "check_same_thread": False}
        address = storage.conn_string_for_shard(INDEX_SHARD_NAME)
        kept = db.create_engine(address, poolclass=db.QueuePool, pool_size=1, connect_args=options)
        # A power failure may lose the last events of the index, never the file: sqlite.org/pragma.html
        db.event.listen(kept, "connect", lambda one, _: one.execute("PRAGMA synchronous=NORMAL"))
        vars(storage)["_kept_index"] = kept
    return kept


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
