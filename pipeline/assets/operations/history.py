"""Where Dagster keeps its runs, events and schedules: its own SQLite files, with the busiest kept open."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import sqlalchemy as db
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData


class EventLog(SqliteEventLogStorage):
    """Opens the index of all runs once in each process. Dagster opens and closes it for every query, and
    SQLite writes its log back each time: a quarter of a run that finds everything up to date. The file of a
    run is still closed after each event, since the UI watches it for changes.
    """

    _index: db.Engine | None = None

    @contextmanager
    def _connect(self, shard: str) -> Iterator[db.Connection]:
        if shard == INDEX_SHARD_NAME and shard in self._initialized_dbs:
            with self._db_lock, self._opened().begin() as connection:
                yield connection
        else:
            with super()._connect(shard) as connection:
                yield connection

    def _opened(self) -> db.Engine:
        if self._index is None:
            options = {"timeout": 60, "check_same_thread": False}  # seconds; `_db_lock` keeps threads apart
            address = self.conn_string_for_shard(INDEX_SHARD_NAME)
            self._index = db.create_engine(address, poolclass=db.QueuePool, pool_size=1, connect_args=options)
            # A power failure may lose the last events of the index, never the file: sqlite.org/pragma.html
            db.event.listen(self._index, "connect", lambda one, _: one.execute("PRAGMA synchronous=NORMAL"))
        return self._index


class Storage(DagsterSqliteStorage):
    """The `storage` of dagster_home/dagster.yaml, in the files of Dagster's default."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None):
        super().__init__(base_dir, inst_data)
        self._event_log_storage = EventLog(self._event_log_storage._base_dir)

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Any) -> Self:
        return cls.from_local(inst_data=inst_data, **config_value)
