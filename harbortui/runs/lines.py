"""Reading journals: whole lines from a byte offset on, whatever state the file is in.

Guarantees: only lines that end in a newline are handed out, each once, in order; memory stays bounded by `limit`
whatever the length of a line; a line that is no event, or is longer than MAX_LINE, is passed over and named, never
raised. The bytes after the last newline are left alone and counted (`pending`): a live writer may still finish them.
A cursor keeps a checksum of all it has read, so that a file that shrank or was replaced by another is noticed before
one line of it is misread, and one that was made again with the same content goes on. The whole checksum is compared
when the file is another one (inode) or was written since an earlier cursor left off (its mark says when; 0 makes it
sure); on every other read only that of the last MARK bytes is. So lines that were changed in the middle, in place,
under a reader at work are noticed by the next one to start that makes sure.

On failure: a file that is missing, replaced or unreadable is a `state` of the batch, not an exception.
"""

import os
import zlib
from pathlib import Path
from typing import Literal, NamedTuple

from harbortui.runs.events import BadEvent, Event, Unknown, decode

CHUNK = 1 << 20
MAX_LINE = 1 << 20
MARK = 4096
_INTEGER = 2**63 - 1

State = Literal["", "missing", "replaced", "unreadable"]


class Bad(NamedTuple):
    """A stretch of a journal that is no event."""

    offset: int
    what: str
    size: int


class Batch(NamedTuple):
    lines: list[bytes]
    start: int
    end: int
    pending: int = 0
    bad: tuple[Bad, ...] = ()
    state: State = ""
    reason: str = ""


class Mark(NamedTuple):
    """What a cursor knows of the bytes it has read, and of the file when it last read it."""

    offset: int = 0
    crc: int = 0
    inode: int = 0
    changed: int = 0


class Cursor:
    """Where one reader stands in one journal."""

    __slots__ = ("_crc", "_searched", "_searched_crc", "_tail", "mark", "path")

    def __init__(self, path: Path | str, mark: Mark | None = None) -> None:
        self.path = str(path)
        self._tail: int | None
        self.reset()
        if mark is not None:
            self.mark, self._tail = mark, None

    @property
    def offset(self) -> int:
        return self.mark.offset

    def reset(self) -> None:
        """Back to the start, whatever the file is now."""
        self.mark = Mark()
        self._tail = 0
        self._searched = self._searched_crc = 0

    def read(self, limit: int = CHUNK) -> Batch:
        """The next whole lines, up to about `limit` bytes; the cursor moves past them."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._nothing("missing")
        except OSError as error:
            return self._nothing("unreadable", error.strerror or str(error))
        try:
            return self._read(fd, limit)
        except OSError as error:
            return self._nothing("unreadable", error.strerror or str(error))
        finally:
            os.close(fd)

    def _nothing(self, state: State, reason: str = "") -> Batch:
        return Batch([], self.offset, self.offset, state=state, reason=reason)

    def _read(self, fd: int, limit: int) -> Batch:
        found = os.fstat(fd)
        size = found.st_size
        if size < self.offset:
            return self._nothing("replaced", f"it shrank to {size} bytes, {self.offset} were read")
        if not self._same(fd, found):
            return self._nothing("replaced", f"the bytes before {self.offset} are not those that were read")
        start = self.offset
        data = os.pread(fd, limit, start)
        end = data.rfind(b"\n")
        if end < 0 and start + len(data) < size:
            limit = max(limit, MAX_LINE + 1)
            data = os.pread(fd, limit, start)
            end = data.rfind(b"\n")
        if end < 0:
            return self._unfinished(fd, size, data)
        lines = data[:end].split(b"\n")
        bad: tuple[Bad, ...] = ()
        if end > MAX_LINE and max(map(len, lines)) > MAX_LINE:
            lines, bad = _before_long(lines, start)
            end = bad[0].offset - start + bad[0].size
        self._move(fd, start + end + 1, zlib.crc32(memoryview(data)[: end + 1], self.mark.crc))
        return Batch(lines, start, self.offset, max(0, size - self.offset), bad)

    def _unfinished(self, fd: int, size: int, data: bytes) -> Batch:
        """No newline in sight: an unfinished line at the end, or one that is too long to be kept in memory."""
        start = self.offset
        if len(data) <= MAX_LINE:
            return Batch([], start, start, len(data))
        at, crc = self._searched, self._searched_crc
        if not start < at <= size:
            at, crc = start, self.mark.crc
        while chunk := os.pread(fd, CHUNK, at):
            found = chunk.find(b"\n")
            if found >= 0:
                self._move(fd, at + found + 1, zlib.crc32(memoryview(chunk)[: found + 1], crc))
                length = at + found - start
                return Batch([], start, self.offset, max(0, size - self.offset), (Bad(start, "line too long", length),))
            at, crc = at + len(chunk), zlib.crc32(chunk, crc)
        self._searched, self._searched_crc = at, crc
        return Batch([], start, start, at - start)

    def _same(self, fd: int, found: os.stat_result) -> bool:
        """Are the bytes before the offset still those that were read?"""
        known = self.mark
        inode = found.st_ino & _INTEGER
        seen = inode == known.inode and (self._tail is not None or found.st_mtime_ns == known.changed)
        if self._tail is not None and self._tail != _tail(fd, known.offset):
            return False
        if not seen and known.offset and known.crc != _crc(fd, known.offset):
            return False
        self.mark = known._replace(inode=inode, changed=found.st_mtime_ns)
        self._tail = _tail(fd, known.offset)
        return True

    def _move(self, fd: int, offset: int, crc: int) -> None:
        self.mark = self.mark._replace(offset=offset, crc=crc)
        self._searched = 0
        self._tail = _tail(fd, offset)


def _tail(fd: int, offset: int) -> int:
    length = min(MARK, offset)
    return zlib.crc32(os.pread(fd, length, offset - length))


def _crc(fd: int, offset: int) -> int:
    at = crc = 0
    while at < offset and (chunk := os.pread(fd, min(CHUNK, offset - at), at)):
        at, crc = at + len(chunk), zlib.crc32(chunk, crc)
    return crc


def _before_long(lines: list[bytes], offset: int) -> tuple[list[bytes], tuple[Bad, ...]]:
    """The lines before the first that is too long, and that one."""
    at = next(number for number, line in enumerate(lines) if len(line) > MAX_LINE)
    offset += sum(len(line) + 1 for line in lines[:at])
    return lines[:at], (Bad(offset, "line too long", len(lines[at])),)


def interpret(line: bytes) -> tuple[Event | Unknown | None, str]:
    """What a line says, and what was wrong with it. Zero bytes around an event are taken off and still named."""
    try:
        return decode(line), ""
    except BadEvent as error:
        why = str(error)
    if not line.strip():
        return None, ""
    if b"\0" in line:
        try:
            return decode(line.strip(b"\0")), "zero bytes"
        except BadEvent:
            return None, "zero bytes"
    try:
        line.decode()
    except UnicodeDecodeError:
        return None, "not UTF-8"
    if why == "Input data was truncated":
        return None, "torn line"
    return None, "no event"
