"""One reader of an index: a read-only connection that follows the index when it is replaced.

Guarantees: nothing is ever written; every question is answered from one snapshot, and so are all those asked within
one `snapshot()`. When the index was built anew the next question reads the new one. A reader may be used from several
threads, one question at a time.

On failure: `IndexUnusable`, one sentence with the remedy, when there is no index, it is of another version, or damaged.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harbortui.runs.events import Event, Unknown, decode
from harbortui.runs.index import schema

BUSY_SECONDS = 1.0
END = 2.0**33


class IndexUnusable(Exception):
    """The index cannot be read as it is."""


class Reader:
    def __init__(self, path: Path, patience: float = BUSY_SECONDS) -> None:
        """`patience`: how long to wait for an index that is there and cannot be opened."""
        self.path = path
        self.patience = patience
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] = (0, 0)
        self._depth = 0

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """All questions asked within see the same moment of the index."""
        with self._lock:
            if self._depth:
                yield self._opened()
                return
            connection = self._fresh()
            try:
                connection.execute("BEGIN")
                self._depth = 1
                yield connection
            except sqlite3.DatabaseError as error:
                raise IndexUnusable(
                    f"{self.path} cannot be read ({error}); try `harbortui index rebuild RUN`"
                ) from error
            finally:
                self._depth = 0
                with contextlib.suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("COMMIT")

    def _opened(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _fresh(self) -> sqlite3.Connection:
        """The connection, opened again when the path leads to another file than before."""
        try:
            found = os.stat(self.path)
        except OSError:
            if self._connection is not None:
                return self._connection
            raise IndexUnusable(f"there is no index at {self.path}; `harbortui index rebuild RUN` makes one") from None
        identity = (found.st_dev, found.st_ino)
        if self._connection is None or identity != self._identity:
            self.close()
            self._connection = connect(self.path, self.patience)
            self._identity = identity
        return self._connection

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.snapshot() as connection:
            return connection.execute(query, values).fetchall()

    def _row(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        with self.snapshot() as connection:
            found: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
            return found

    def _events(self, query: str, *values: Any) -> list[Event]:
        """The events whose lines a query gives in its first column."""
        found: list[Event | Unknown] = [decode(row[0].encode()) for row in self._rows(query, *values)]
        return [event for event in found if isinstance(event, Event)]

    def _keys(self, kind: str) -> list[str]:
        """The keys under which facts of a kind are known; one seek for each."""
        rows = self._rows(
            "WITH RECURSIVE known(key) AS (SELECT min(key) FROM fact WHERE kind = ? UNION ALL "
            "SELECT (SELECT min(key) FROM fact WHERE kind = ? AND key > known.key) FROM known WHERE key IS NOT NULL) "
            "SELECT key FROM known WHERE key IS NOT NULL",
            kind,
            kind,
        )
        return [key for (key,) in rows]

    def _last[E: Event](self, kind: type[E], key: str, at: float | None) -> E | None:
        """The newest fact under a key: now, by attempt and monotonic time, so that a clock set back hides nothing."""
        query = "SELECT body FROM fact WHERE kind = ? AND key = ? "
        values: list[str | float] = [kind_tag(kind), key]
        if at is None:
            query += "ORDER BY attempt DESC, m DESC, t DESC, process DESC, body DESC LIMIT 1"
        else:
            query += "AND t <= ? ORDER BY t DESC, process DESC, body DESC LIMIT 1"
            values.append(at)
        events = self._events(query, *values)
        return events[0] if events and isinstance(events[0], kind) else None

    def _facts[E: Event](self, kind: type[E], at: float | None = None, key: str | None = None) -> list[E]:
        """All facts of a kind (and key) up to a moment, in the order in which they came about."""
        query, values = "SELECT body FROM fact WHERE kind = ? AND t <= ?", [kind_tag(kind), END if at is None else at]
        if key is not None:
            query, values = query + " AND key = ?", [*values, key]
        events = self._events(query + " ORDER BY t, key, process, body", *values)
        return sorted((event for event in events if isinstance(event, kind)), key=lambda e: (e.attempt, e.m, e.t))

    def last_moment(self) -> float:
        """The time of the newest event; 0 when there is none."""
        row = self._row("SELECT last FROM extent")
        return row[0] if row else 0.0


def kind_tag(kind: type[Event]) -> str:
    return str(kind.__struct_config__.tag)


def connect(path: Path, patience: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open an index for reading; `IndexUnusable` when that cannot be done."""
    deadline = time.monotonic() + patience
    while True:
        try:
            connection = sqlite3.connect(
                f"file:{_quoted(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False,
                timeout=patience, cached_statements=256,
            )  # fmt: skip
            found = schema.version(connection)
            break
        except sqlite3.OperationalError as error:
            if time.monotonic() > deadline or not path.exists():
                raise IndexUnusable(f"{path} cannot be opened ({error})") from error
            time.sleep(0.02)
        except sqlite3.DatabaseError as error:
            raise IndexUnusable(f"{path} is no index ({error}); try `harbortui index rebuild RUN`") from error
    if found != schema.VERSION:
        connection.close()
        raise IndexUnusable(f"{path} was written by another version of this program; try `harbortui index rebuild RUN`")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA cache_size = -16384")
    return connection


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
