"""What the journals of a run tell from now on, for faces that look again and again and must not wait in between.

Guarantees: `fresh` hands out each event once, as the journals grow, in order of time within what has come since the
last call. `skip` passes over what is there without reading it closely.

On failure: a line that is no event is passed over (the index counts them); a journal that is missing or unreadable is
empty for now; one that was replaced is read from its start, without what is older than what was told from it before.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from harbortui.runs.events import Event, Unknown
from harbortui.runs.layout import Run, process_of_journal
from harbortui.runs.lines import Cursor, interpret

Told = tuple[str, Event | Unknown]


class Stream:
    def __init__(self, run: Run, processes: Iterable[str] | None = None) -> None:
        self._run = run
        self._processes = None if processes is None else set(processes)
        self._cursors: dict[str, Cursor] = {}
        self._last: dict[str, float] = {}
        self._after: dict[str, float] = {}

    def skip(self) -> None:
        for cursor in self._journals().values():
            for _ in _lines(cursor):
                pass

    def fresh(self) -> list[Told]:
        found: list[Told] = []
        for name, cursor in self._journals().items():
            process = process_of_journal(name)
            for line in _lines(cursor, partial(self._replaced, name)):
                event, _ = interpret(line)
                if event is not None and event.t > self._after.get(name, -1.0):
                    self._last[name] = event.t
                    found.append((process, event))
        return sorted(found, key=lambda told: told[1].t)

    def _replaced(self, name: str) -> None:
        self._after[name] = self._last.get(name, -1.0)

    def _journals(self) -> dict[str, Cursor]:
        try:
            paths = list(self._run.journals.iterdir())
        except OSError:
            return {}
        for path in paths:
            named = path.suffix == ".jsonl" and path.name[0] != "."
            wanted = self._processes is None or process_of_journal(path.name) in self._processes
            if named and wanted and path.name not in self._cursors:
                self._cursors[path.name] = Cursor(path)
        return self._cursors


def _lines(cursor: Cursor, replaced: Callable[[], None] = lambda: None) -> Iterator[bytes]:
    while True:
        batch = cursor.read()
        if batch.state == "replaced":
            replaced()
            cursor.reset()
            continue
        yield from batch.lines
        if batch.end == batch.start:
            return
