"""Writing a journal: one file per process, one writer, one whole line per event.

Guarantees: `append` returning True is an acknowledgement: the whole line was given to the kernel in one write, so it
outlives the death of any process. Events of the durable kinds (run, step, operator, a whole checkpoint) are also on
the disk (fdatasync) before `append` returns; all others reach it when the kernel writes back, within seconds, and may
be lost with the machine, not with a process. A second writer of the same file is refused. A file that was deleted or
replaced while it is written is made anew with everything that was in it, so that offsets stay valid. One loss cannot be
prevented: a file that somebody deleted, on a disk without room to make it anew, until its writer ends.

On failure nothing is raised after opening: with a full disk, a quota or an I/O error `append` returns False and keeps
the line (`pending` counts them); it is tried again with every append and flush, in order. When more than HELD_BYTES
wait, the oldest lines that are not of a durable kind are dropped first. A half-written line is taken back. What was
held, dropped, refused as too long, or made anew is told by a Defect event in the same journal as soon as it can be
written. A run directory that was removed is not made again.
"""

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from harbortui.runs.events import CheckpointChanged, Defect, Event, JournalOpened, encode, kind_of, stamp
from harbortui.runs.layout import Run
from harbortui.runs.lines import MAX_LINE

DURABLE = frozenset({"run", "step", "operator"})
HELD_BYTES = 8 << 20
LOOK_EVERY = 256
LOOK_SECONDS = 0.25
_COPY = 1 << 20
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})


class JournalInUse(Exception):
    """Another live process writes this journal."""


class Journal:
    """The one writer of one journal file."""

    def __init__(self, path: Path, process: str, role: str, attempt: int = 1, demo: bool = False) -> None:
        self.path = path
        self.process = process
        self.attempt = attempt
        self.demo = demo
        self.dropped = 0
        self._dropped_untold = 0
        self._late = 0
        self._lock = threading.Lock()
        self._fd = -1
        self._size = 0
        self._torn = False
        self._unsynced = False
        self._trouble = ""
        self._held: dict[int, bytes] = {}
        self._loose: deque[int] = deque()
        self._held_bytes = 0
        self._serial = 0
        self._untold: list[Defect] = []
        self._appends = 0
        self._looked = 0.0
        self._closed = False
        self._attach(opening=True)
        self.append(
            JournalOpened(process=process, role=role, pid=os.getpid(), host=os.uname().nodename, boot=_boot_id())
        )

    @classmethod
    def open(cls, run: Run, process: str, role: str, attempt: int, demo: bool = False) -> Self:
        return cls(run.journal(process, os.getpid(), attempt), process, role, attempt, demo)

    @property
    def pending(self) -> int:
        """Lines that are held in memory because they could not be written."""
        return len(self._held)

    @property
    def trouble(self) -> str:
        """Why lines are held; empty when none are."""
        return self._trouble

    def append(self, event: Event) -> bool:
        """Write one event; True when it is acknowledged (see above). Never raises for what the disk does."""
        stamp(event, self.attempt, self.demo)
        durable = _is_durable(event)
        try:
            line = _line(event)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return self._refuse(event, "cannot be encoded", str(error))
        if len(line) > MAX_LINE:
            return self._refuse(event, "too long", f"{len(line)} bytes, {MAX_LINE} allowed")
        with self._lock:
            if not (self._fit() and not self._held and not self._untold and self._write(line)):
                self._hold(line, durable)
                if not self._drain():
                    self._late += 1
                    return False
            return not durable or self._sync()

    def flush(self) -> bool:
        """Write what is held and put the file on the disk; True when nothing is left to do."""
        with self._lock:
            return self._fit(look=True) and self._drain() and self._sync()

    def close(self) -> int:
        """Flush and let go of the file; the number of lines that could not be written and are lost with it."""
        with self._lock:
            if not self._closed:
                if self._fit(look=True) and self._drain():
                    self._sync()
                self._detach()
                self._closed = True
            return len(self._held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # --- all below is called with the lock held ---

    def _attach(self, opening: bool = False) -> None:
        """Open the file; on a full or failing disk leave that to the next append."""
        try:
            self.path.parent.mkdir(exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if opening and error.errno not in _PASSING:
                raise
            self._note_trouble(error)
            return
        if not _lock_file(fd):
            os.close(fd)
            self._trouble = f"{self.path} is being written by another process"
            if opening:
                raise JournalInUse(self._trouble)
            return
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._torn = self._size > 0 and os.pread(fd, 1, self._size - 1) != b"\n"

    def _detach(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _fit(self, look: bool = False) -> bool:
        """Is the open file still the one that a reader finds? Deletion is looked for always, renaming at times."""
        if self._closed:
            self._trouble = "the journal is closed"
            return False
        if self._fd < 0:
            self._attach()
            return self._fd >= 0
        try:
            here = os.fstat(self._fd)
            now = time.monotonic()
            self._appends += 1
            if here.st_nlink and not look and self._appends % LOOK_EVERY and now - self._looked < LOOK_SECONDS:
                return True
            self._looked = now
            with contextlib.suppress(FileNotFoundError):
                there = os.stat(self.path)
                if (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev):
                    return True
            return self._make_anew()
        except OSError as error:
            self._note_trouble(error)
            return False

    def _make_anew(self) -> bool:
        if not self.path.parent.parent.is_dir():
            self._trouble = f"{self.path.parent.parent} is gone"
            return False
        self.path.parent.mkdir(exist_ok=True)
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        fd = os.open(aside, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _lock_file(fd)
            at = 0
            while at < self._size and (chunk := os.pread(self._fd, min(_COPY, self._size - at), at)):
                _write_all(fd, chunk)
                at += len(chunk)
            os.rename(aside, self.path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
        os.close(self._fd)
        self._fd = fd
        self._untold.append(Defect(what="made anew", detail="the file had been deleted or replaced"))
        return True

    def _write(self, line: bytes) -> bool:
        data = b"\n" + line if self._torn else line
        written = 0
        try:
            written = os.write(self._fd, data)
            if written < len(data):
                _write_all(self._fd, data[written:])
        except OSError as error:
            self._note_trouble(error)
            self._take_back()
            return False
        self._size += len(data)
        self._torn = False
        return True

    def _take_back(self) -> None:
        """Remove the beginning of a line whose end did not fit."""
        try:
            if os.fstat(self._fd).st_size > self._size:
                os.ftruncate(self._fd, self._size)
        except OSError:
            with contextlib.suppress(OSError):
                self._size = os.fstat(self._fd).st_size
            self._torn = True

    def _sync(self) -> bool:
        if self._fd < 0:
            return False
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._note_trouble(error)
            if not self._unsynced:
                self._untold.append(Defect(what="not on disk", detail=self._trouble))
            self._unsynced = True
            return False
        self._unsynced = False
        return True

    def _hold(self, line: bytes, durable: bool) -> None:
        self._serial += 1
        self._held[self._serial] = line
        self._held_bytes += len(line)
        if not durable:
            self._loose.append(self._serial)
        while self._held_bytes > HELD_BYTES:
            oldest = self._loose.popleft() if self._loose else next(iter(self._held))
            self._held_bytes -= len(self._held.pop(oldest))
            self.dropped += 1
            self._dropped_untold += 1

    def _drain(self) -> bool:
        """Write the held lines in order, then tell what happened to them."""
        if not (self._held or self._untold):
            return True
        if not self._fit():
            return False
        while self._held:
            serial = next(iter(self._held))
            if not self._write(self._held[serial]):
                return False
            self._held_bytes -= len(self._held.pop(serial))
            if self._loose and self._loose[0] == serial:
                self._loose.popleft()
        for what, count in (("held", self._late), ("dropped", self._dropped_untold)):
            if count:
                self._untold.append(Defect(what=what, count=count, detail=self._trouble))
        self._late = self._dropped_untold = 0
        self._trouble = ""
        while self._untold:
            if not self._write(_line(stamp(self._untold[0], self.attempt, self.demo))):
                return False
            self._untold.pop(0)
        return True

    def _refuse(self, event: Event, what: str, why: str) -> bool:
        with self._lock:
            self._untold.append(Defect(what=what, detail=f"{kind_of(event)}: {why}"[:500]))
            self._drain()
        return False

    def _note_trouble(self, error: OSError) -> None:
        self._trouble = error.strerror or str(error)


def _is_durable(event: Event) -> bool:
    if isinstance(event, CheckpointChanged):
        return event.state == "whole"
    return kind_of(event) in DURABLE


def _line(event: Event) -> bytes:
    try:
        return encode(event) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(_printable(msgspec.to_builtins(event))) + b"\n"


def _printable(value: Any) -> Any:
    """Strings that came from undecodable bytes (file names, say) hold halves of characters that JSON cannot carry."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(part) for key, part in value.items()}
    return [_printable(part) for part in value] if isinstance(value, list) else value


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _lock_file(fd: int) -> bool:
    """False when another process holds the file; a file system without locks is taken as it is."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
