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


@dataclass(frozen=True, slots=True, order=True)
class Line:
    at: str
    process: str
    text: str


def clean(text: str) -> str:
    """Text that cannot move a cursor, set a title or reach a clipboard."""
    return _CONTROL.sub("", text)


def tail(path: Path, lines: int, since: int = 0) -> str:
    """The last lines of a log, not before byte `since` of the current file, each cut at 4096 characters."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(since if since <= size else 0, size - lines * 512, 0)
            file.seek(start)
            data = file.read(lines * 512)
    except OSError:
        return ""
    text = data.decode("utf-8", "replace").split("\n")
    if start > since and len(text) > 2:
        text = text[1:]
    kept = [clean(line)[:LONGEST] for line in text if line.strip()]
    return "\n".join(kept[-lines:])


def processes(run: Run) -> list[str]:
    try:
        return sorted({path.name.split(".log")[0] for path in run.logs.iterdir() if ".log" in path.name})
    except OSError:
        return []


def read(run: Run, names: Iterable[str] | None = None, last: int | None = None) -> list[Line] | Iterator[Line]:
    """Lines of these processes in time order: all of them lazily, or the `last` ones."""
    chosen = list(names) if names is not None else processes(run)
    if last is None:
        return heapq.merge(*(_lines(run, name) for name in chosen))
    found: list[Line] = []
    for name in chosen:
        at = ""
        for raw in tail(run.log(name), last).splitlines():
            found.append(line := _parse(name, raw, at))
            at = line.at
    return sorted(found)[-last:]


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
    return Line(found[1] if found else at, process, text[:LONGEST])


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
        yield from sorted(found)
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
