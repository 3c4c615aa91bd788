"""Reading journals: whole lines from a byte offset on, whatever state the file is in.

Guarantees: only lines that end in a newline are handed out, each once, in order; memory stays bounded by `limit`
whatever the length of a line; a line that is no event, or is longer than MAX_LINE, is passed over and named, never
raised. The bytes after the last newline are left alone and counted (`pending`): a live writer may still finish them.
A cursor keeps a checksum of the bytes just before its offset, so that a file that shrank or was replaced by another
is noticed before one line of it is misread; a file that was re-created with the same content goes on.

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
    """The checksum of the `length` bytes before an offset."""

    length: int = 0
    crc: int = 0


class Cursor:
    """Where one reader stands in one journal."""

    __slots__ = ("_searched", "mark", "offset", "path")

    def __init__(self, path: Path | str, offset: int = 0, mark: Mark | None = None) -> None:
        self.path = str(path)
        self.offset = offset
        self.mark = mark if mark is not None or offset else Mark()
        self._searched = 0

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
        size = os.fstat(fd).st_size
        if size < self.offset:
            return self._nothing("replaced", f"it shrank to {size} bytes, {self.offset} were read")
        if self.mark is not None and self.mark != _mark(fd, self.offset, self.mark.length):
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
        self._move(fd, start + end + 1)
        return Batch(lines, start, self.offset, max(0, size - self.offset), bad)

    def _unfinished(self, fd: int, size: int, data: bytes) -> Batch:
        """No newline in sight: an unfinished line at the end, or one that is too long to be kept in memory."""
        start = self.offset
        if len(data) <= MAX_LINE:
            return Batch([], start, start, len(data))
        at = max(start + len(data), min(self._searched, size))
        while chunk := os.pread(fd, CHUNK, at):
            found = chunk.find(b"\n")
            if found >= 0:
                self._move(fd, at + found + 1)
                length = at + found - start
                return Batch([], start, self.offset, max(0, size - self.offset), (Bad(start, "line too long", length),))
            at += len(chunk)
        self._searched = at
        return Batch([], start, start, at - start)

    def _move(self, fd: int, offset: int) -> None:
        self.offset, self._searched = offset, 0
        self.mark = _mark(fd, offset, MARK)


def _mark(fd: int, offset: int, length: int) -> Mark:
    data = os.pread(fd, min(length, offset), max(0, offset - length))
    return Mark(len(data), zlib.crc32(data))


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
