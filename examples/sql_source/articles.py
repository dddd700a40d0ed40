"""A table of a SQL database as a source, here SQLite: one document for each row.

python articles.py articles.sqlite    # makes a small table to try it with
"""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from pipeline.plugins import Document

HERE = Path(__file__).parent  # a database that is named without its directory lies beside this file


class Articles:
    """The rows of `articles`. A database server takes a password: read it from the environment, since the
    parameters in a recipe become part of what is published with a model.
    """

    def __init__(self, database: str, section: str | None = None) -> None:
        self.path = HERE / database
        self.section = section

    def fingerprint(self) -> str:
        """Changes with every insert, update and delete, and reads one row: `updated` has an index."""
        ((count, newest),) = self._rows("SELECT count(*), max(updated) FROM articles")
        return f"{count} {newest}"

    def documents(self) -> Iterator[Document]:
        columns = "id, body, url, title, section"
        query = f"SELECT {columns} FROM articles WHERE section = coalesce(?, section) ORDER BY id"
        for id_, body, url, title, section in self._rows(query, self.section):
            yield Document(str(id_), body, url, {"title": title, "section": section})

    def _rows(self, query: str, *values: object) -> Iterator[tuple]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
            yield from connection.execute(query, values)


def make(path: Path) -> None:
    """A table of the chapters of Python's own reference."""
    from pydoc_data.topics import topics

    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE articles (id INTEGER PRIMARY KEY, body, url, title, section, updated)"
        )
        connection.execute("CREATE INDEX by_time ON articles (updated)")
        rows = [
            (text, f"https://docs.python.org/3/{title}", title, "reference", f"2026-01-01T00:00:{n % 60:02}")
            for n, (title, text) in enumerate(sorted(topics.items()))
        ]
        connection.executemany(
            "INSERT INTO articles (body, url, title, section, updated) VALUES (?, ?, ?, ?, ?)", rows
        )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
