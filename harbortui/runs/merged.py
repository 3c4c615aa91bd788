"""All events of a run in order of time, read straight from its journals (`harbortui events`).

Guarantees: journals are read a piece at a time, so memory does not grow with them; every readable event is handed out
once. Each journal is in its own order; between journals the earlier time comes first. Events of unknown kinds are
handed out as they are; lines that say nothing are passed over (the index counts them). When following, what has been
appended since the last look is sorted and handed out; journals that appear later are followed too.
"""

import heapq
import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from harbortui.runs.events import Event, Unknown, kind_of
from harbortui.runs.layout import Run, process_of_journal
from harbortui.runs.lines import Cursor, interpret

PIECE = 64 << 10
LOOK_SECONDS = 0.1

Told = tuple[str, Event | Unknown]


def merged(
    run: Run,
    kinds: Collection[str] | None = None,
    since: float | None = None,
    follow: bool = False,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Told]:
    """(process, event) of all journals; with `follow` without end, looking again after each `sleep`."""
    cursors: dict[str, Cursor] = {}

    def wanted(event: Event | Unknown) -> bool:
        kind = event.kind if isinstance(event, Unknown) else kind_of(event)
        return (not kinds or kind in kinds) and (since is None or event.t >= since)

    _find(run.journals, cursors)
    streams = [_stream(process_of_journal(name), cursor) for name, cursor in sorted(cursors.items())]
    for told in heapq.merge(*streams, key=_time):
        if wanted(told[1]):
            yield told
    while follow:
        _find(run.journals, cursors)
        fresh = [told for name, cursor in cursors.items() for told in _stream(process_of_journal(name), cursor)]
        for told in sorted(fresh, key=_time):
            if wanted(told[1]):
                yield told
        if not fresh:
            sleep(LOOK_SECONDS)


def _time(told: Told) -> float:
    return told[1].t


def _find(folder: Path, cursors: dict[str, Cursor]) -> None:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if name.endswith(".jsonl") and not name.startswith(".") and name not in cursors:
            cursors[name] = Cursor(folder / name)


def _stream(process: str, cursor: Cursor) -> Iterator[Told]:
    """What a journal holds from the cursor to its end of now. One that was replaced is read from its start."""
    while True:
        read = cursor.read(PIECE)
        if read.state == "replaced":
            cursor.reset()
            continue
        for line in read.lines:
            event, _ = interpret(line)
            if event is not None:
                yield process, event
        if read.end == read.start:
            return
