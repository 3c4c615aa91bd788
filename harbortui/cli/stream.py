"""All journals of a run as one stream of events in time order.

Guarantees: `read` merges lazily and in bounded memory; events of one process stay in the order in which it told them.
`fresh` hands out each event once, as the journals grow, sorted within what has come since the last call.

On failure: a line that is no event is passed over (`harbortui status` and the index count them); a journal that is
missing or unreadable is empty; one that shrank is read from its start, without what was told before.
"""

import heapq
from collections.abc import Iterable, Iterator

from harbortui.runs.events import Event, Unknown
from harbortui.runs.layout import Run, process_of_journal
from harbortui.runs.lines import Cursor, interpret

Told = tuple[str, Event | Unknown]


def read(run: Run, processes: Iterable[str] | None = None) -> Iterator[Told]:
    """Everything that was told until now."""
    sources = (_journal(name, Cursor(run.journals / name)) for name in _names(run, processes))
    return heapq.merge(*sources, key=lambda told: told[1].t)


def _names(run: Run, processes: Iterable[str] | None) -> list[str]:
    wanted = None if processes is None else set(processes)
    try:
        names = [path.name for path in run.journals.iterdir() if path.suffix == ".jsonl" and path.name[0] != "."]
    except OSError:
        return []
    return sorted(name for name in names if wanted is None or process_of_journal(name) in wanted)


def _journal(name: str, cursor: Cursor) -> Iterator[Told]:
    """The events from the cursor to the end of the journal."""
    process = process_of_journal(name)
    while True:
        batch = cursor.read()
        for line in batch.lines:
            event, _ = interpret(line)
            if event is not None:
                yield process, event
        if batch.end == batch.start:
            return


class Stream:
    """What has been told since one asked last."""

    def __init__(self, run: Run, processes: Iterable[str] | None = None) -> None:
        self._run = run
        self._processes = None if processes is None else set(processes)
        self._cursors: dict[str, Cursor] = {}
        self._after: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def fresh(self) -> list[Told]:
        found: list[Told] = []
        for name in _names(self._run, self._processes):
            path = self._run.journals / name
            cursor = self._cursors.setdefault(name, Cursor(path))
            try:
                shrunk = path.stat().st_size < cursor.offset
            except OSError:
                continue
            if shrunk:
                cursor = self._cursors[name] = Cursor(path)
                self._after[name] = self._last.get(name, -1.0)
            for process, event in _journal(name, cursor):
                if event.t > self._after.get(name, -1.0):
                    found.append((process, event))
                    self._last[name] = event.t
        return sorted(found, key=lambda told: told[1].t)
