"""The writing side of an index: finds what is new in the journals and takes it in.

Guarantees: only one writer per index (the lock is taken by the caller). An index that was never there starts empty and
can be read while it grows. One of another version, a damaged one, or one whose journals shrank, were replaced or are
missing at the start is built anew from the journals, beside the old one, and takes its place when it is whole; the
reason stays visible in `meta`. Journals are taken in the order of their
events' time as far as chunks allow. A journal that vanishes while it is watched keeps what was taken from it, as its
writer makes it again; the fact is visible.

On failure: a full disk or a locked file raises `sqlite3.OperationalError` after a rollback; call again later.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from harbortui.runs.index import schema
from harbortui.runs.index.ingest import Ingest
from harbortui.runs.index.place import Place
from harbortui.runs.layout import Run, process_of_journal
from harbortui.runs.lines import CHUNK, Cursor, Mark, State

BATCH_BYTES = 4 << 20
WAL_PAGES = 4000
TRIES = 5
UNSEEN = (-1, -1)
_PASSING = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_NOMEM,
    }
)
Progress = Callable[[int, int], None]


class _Source:
    """A journal as the writer knows it."""

    __slots__ = ("cursor", "done", "last", "name", "pending", "process", "reason", "seen", "state")

    def __init__(self, folder: Path, name: str, mark: Mark | None = None, last: float = 0.0) -> None:
        self.name = name
        self.process = process_of_journal(name)
        self.cursor = Cursor(folder / name, mark)
        self.last = last
        self.seen = UNSEEN
        self.state: State = ""
        self.reason = ""
        self.pending = 0
        self.done = False

    def record(self) -> tuple[str | int | float, ...]:
        return (self.name, self.process, *self.cursor.mark, self.pending, self.state, self.reason, self.last)


class _Stale(Exception):
    """The index no longer follows from the journals."""


class Index:
    """`thorough`: at the start compare every journal's checksum, also of those that seem untouched."""

    def __init__(self, run: Run, place: Place, thorough: bool = False) -> None:
        self._run = run
        self._place = place
        self._thorough = thorough
        self._path = place.index
        self._sources: dict[str, _Source] = {}
        self._connection: sqlite3.Connection | None = None
        self._ingest: Ingest | None = None

    def open(self, progress: Progress | None = None) -> None:
        """Open what is there, or build it anew where that cannot be gone on with."""
        self._place.sweep()
        path = self._place.generation()
        if path is None:
            path = self._place.fresh()
            _create(path, "there was none")
            self._attach(path)
            self._place.point_at(path)
            return
        try:
            self._attach(path)
            return
        except _Stale as stale:
            reason = str(stale)
        except sqlite3.DatabaseError as error:
            reason = f"it was damaged ({error})"
        self.rebuild(reason, progress)

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._ingest = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def poll(self, limit: int = BATCH_BYTES) -> int:
        """Take in about `limit` new bytes in one transaction; 0 when nothing was new."""
        if self._connection is None:
            self.open()
        try:
            if self._place.request.exists():
                raise _Stale("it was asked for")
            if self._place.generation() != self._path:
                raise _Stale("it was removed")
            return self._poll(limit)
        except _Stale as stale:
            self.rebuild(str(stale))
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOMEM) & 0xFF in _PASSING:
                self._recall()
                raise
            self.rebuild(f"it was damaged ({error})")
        except Exception:
            self._recall()
            raise
        return 1

    def catch_up(self, progress: Progress | None = None) -> None:
        """Take in everything that the journals hold now."""
        self._catch_up(self.poll, progress)

    def rebuild(self, reason: str, progress: Progress | None = None) -> None:
        """Build a new generation from the journals alone and put it in the place of the old."""
        self.close()
        path = self._place.fresh()
        for _ in range(TRIES):
            try:
                self._build(path, reason, progress)
                break
            except _Stale:
                self.close()
                path.unlink()
        self._attach(path)
        self._place.point_at(path)
        with contextlib.suppress(FileNotFoundError):
            self._place.request.unlink()

    # --- inside ---

    def _build(self, path: Path, reason: str, progress: Progress | None) -> None:
        _create(path, reason)
        connection = _connect(path)
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        self._use(connection, path, {})
        self._catch_up(self._poll, progress)
        self.close()
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def _attach(self, path: Path) -> None:
        connection = _connect(path)
        try:
            if (found := schema.version(connection)) != schema.VERSION:
                raise _Stale(f"it was of version {found}, not {schema.VERSION}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
            sources = self._recorded(connection)
            if missing := sorted(sources.keys() - {name for name, _, _ in self._scan()}):
                raise _Stale(f"{missing[0]} is gone")
        except BaseException:
            connection.close()
            raise
        self._use(connection, path, sources)

    def _use(self, connection: sqlite3.Connection, path: Path, sources: dict[str, _Source]) -> None:
        self._connection, self._path, self._sources = connection, path, sources
        self._ingest = Ingest(connection)

    def _recorded(self, connection: sqlite3.Connection) -> dict[str, _Source]:
        return {
            name: _Source(self._run.journals, name, Mark(offset, crc, inode, 0 if self._thorough else changed), last)
            for name, offset, crc, inode, changed, last in connection.execute(
                "SELECT name, offset, crc, inode, changed, last FROM journal"
            )
        }

    def _recall(self) -> None:
        """After a rollback: stand where the disk says."""
        if self._connection is not None:
            self._sources = self._recorded(self._connection)

    def _scan(self) -> Iterator[tuple[str, int, int]]:
        try:
            entries = os.scandir(self._run.journals)
        except OSError:
            return
        with entries:
            for entry in entries:
                if entry.name.endswith(".jsonl") and not entry.name.startswith("."):
                    try:
                        found = entry.stat()
                    except OSError:
                        continue
                    yield entry.name, found.st_size, found.st_ino

    def _catch_up(self, poll: Callable[[], int], progress: Progress | None) -> None:
        target = sum(size for _, size, _ in self._scan())
        while poll():
            done = sum(source.cursor.offset for source in self._sources.values())
            if progress:
                progress(min(done, target), target)
            if done >= target:
                break

    def _changed(self) -> tuple[list[_Source], list[_Source]]:
        """The journals with something new in them, and those that vanished since the last look."""
        grown, present = [], set()
        for name, size, inode in self._scan():
            present.add(name)
            source = self._sources.get(name)
            if source is None:
                source = self._sources[name] = _Source(self._run.journals, name)
            if source.seen != (size, inode):
                source.seen = (size, inode)
                grown.append(source)
        gone = [s for name, s in self._sources.items() if name not in present and s.state != "missing"]
        return grown, gone

    def _poll(self, limit: int = BATCH_BYTES) -> int:
        grown, gone = self._changed()
        if not (grown or gone) or self._ingest is None or self._connection is None:
            return 0
        taken = 0
        touched = {source.name: source for source in (*gone, *grown)}
        with self._ingest as batch:
            for source in gone:
                source.state, source.seen = "missing", UNSEEN
            while grown and taken < limit:
                source = min(grown, key=_last)
                taken += self._read(batch, source, min(CHUNK, limit))
                if source.done:
                    grown.remove(source)
            for source in grown:
                source.seen = UNSEEN
            self._connection.executemany(
                "INSERT OR REPLACE INTO journal VALUES (?,?,?,?,?,?,?,?,?,?)",
                [source.record() for source in touched.values()],
            )
        return max(taken, 1)

    def _read(self, batch: Ingest, source: _Source, limit: int) -> int:
        read = source.cursor.read(limit)
        if read.state == "replaced":
            raise _Stale(f"{source.name} was replaced: {read.reason}")
        source.state, source.reason, source.pending = read.state, read.reason, read.pending
        source.done = read.end == read.start or not read.pending
        source.last = batch.lines(source.name, source.process, read.lines, read.start) or source.last
        for bad in read.bad:
            batch.bad(source.name, bad.what, bad.offset)
        return read.end - read.start


def _last(source: _Source) -> float:
    return source.last


def _create(path: Path, reason: str) -> None:
    connection = _connect(path)
    try:
        connection.execute("BEGIN")
        schema.create(connection)
        connection.executemany("INSERT INTO meta VALUES (?,?)", [("built", f"{time.time():.3f}"), ("reason", reason)])
        connection.execute("COMMIT")
    finally:
        connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA cache_size = -65536")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection
