"""Reading the logs that keepers write: the end of one, all of them merged in time, following through rotations.

Guarantees: reads bounded amounts, whatever the size of a log; every line handed out is free of control sequences.
A line is `Line(at, process, text)`; lines without a time (torn by a rotation) take that of the line before.

On failure: a log that is missing or vanishes is empty.
"""

import heapq
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harbortui.runs.layout import Run

_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x1b\\|\x07|$)|[ -/]*[0-~])"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ?")
BLOCK = 1 << 16
LONGEST = 4096
MOST = 1 << 22


@dataclass(frozen=True, slots=True)
class Line:
    at: str
    process: str
    text: str


def clean(text: str) -> str:
    """Text that cannot move a cursor, set a title or reach a clipboard."""
    return _CONTROL.sub("", text)


def tail(path: Path, lines: int, since: int = 0) -> str:
    """The last lines of a log, not before byte `since` of the current file."""
    return "\n".join(clip(clean(line)) for line in _last(path, lines, since) if line.strip())


def clip(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text) - LONGEST} more characters)"


def _last(path: Path, lines: int, since: int = 0) -> list[str]:
    """The last lines of one file; at most MOST bytes are read for them."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            first = since if since <= size else 0
            start, data = size, b""
            while start > first and data.count(b"\n") <= lines and len(data) < MOST:
                start = max(first, start - BLOCK)
                file.seek(start)
                data = file.read(size - start)
    except OSError:
        return []
    found = data.decode("utf-8", "replace").split("\n")
    if found and not found[-1]:
        found.pop()
    if start > first and len(found) > 1:
        found.pop(0)
    return found[-lines:]


def processes(run: Run) -> list[str]:
    try:
        return sorted({path.name.split(".log")[0] for path in run.logs.iterdir() if ".log" in path.name})
    except OSError:
        return []


def read(run: Run, names: Iterable[str] | None = None, last: int | None = None) -> list[Line] | Iterator[Line]:
    """Lines of these processes in time order: all of them lazily, or the `last` ones."""
    chosen = list(names) if names is not None else processes(run)
    if last is None:
        return heapq.merge(*(_lines(run, name) for name in chosen), key=_when)
    found: list[Line] = []
    for name in chosen:
        raw = _last(run.log(name), last)
        if len(raw) < last:
            raw = _last(run.log(name).with_name(f"{name}.log.1"), last - len(raw)) + raw
        at = ""
        for text in raw:
            found.append(line := _parse(name, text, at))
            at = line.at
    return sorted(found, key=_when)[-last:]


def _when(line: Line) -> str:
    """Lines of the same moment stay in the order in which they were written."""
    return line.at


def _lines(run: Run, name: str) -> Iterator[Line]:
    rotated = sorted(run.logs.glob(f"{name}.log.*"), key=lambda p: -int(p.suffix[1:]) if p.suffix[1:].isdigit() else 0)
    at = ""
    for path in [*rotated, run.log(name)]:
        try:
            with open(path, "rb") as file:
                while raw := file.readline(1 << 20):
                    line = _parse(name, raw.decode("utf-8", "replace"), at)
                    at = line.at
                    yield line
        except OSError:
            continue


def _parse(process: str, raw: str, at: str) -> Line:
    raw = raw.rstrip("\r\n")
    found = STAMP.match(raw)
    text = clean(raw[found.end() :] if found else raw)
    return Line(found[1] if found else at, process, clip(text))


def follow(run: Run, names: Iterable[str] | None = None, pause: float = 0.1) -> Iterator[Line | None]:
    """New lines as they come, by byte offset (network file systems do not notify); None at each quiet moment."""
    chosen = set(names) if names is not None else None
    places: dict[str, tuple[int, int, bytes]] = {}
    first = True
    while True:
        found: list[Line] = []
        for name in processes(run):
            if chosen is None or name in chosen:
                found += _fresh(run.log(name), name, places, first)
        first = False
        yield from sorted(found, key=_when)
        if not found:
            yield None
            time.sleep(pause)


def _fresh(path: Path, name: str, places: dict[str, tuple[int, int, bytes]], first: bool) -> list[Line]:
    try:
        with open(path, "rb") as file:
            stat = os.fstat(file.fileno())
            inode, offset, rest = places.get(name, (stat.st_ino, stat.st_size if first else 0, b""))
            if inode != stat.st_ino or offset > stat.st_size:
                offset, rest = 0, b""
            file.seek(offset)
            data = file.read(1 << 20)
    except OSError:
        return []
    *lines, rest = (rest + data).split(b"\n")
    places[name] = (stat.st_ino, offset + len(data), rest[-BLOCK:])
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    return [_parse(name, raw.decode("utf-8", "replace"), at) for raw in lines]
