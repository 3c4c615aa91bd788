"""What a reader makes of a journal, for the tests of journals."""

from pathlib import Path

from harbortui.runs.events import Defect, Event, Note, Unknown
from harbortui.runs.lines import Cursor, interpret


def read(path: Path) -> tuple[list[Event | Unknown], list[str]]:
    """Everything that a reader makes of a journal: events, and names of what was wrong."""
    cursor, found, wrong = Cursor(path), [], []
    while True:
        batch = cursor.read()
        for line in batch.lines:
            event, defect = interpret(line)
            found += [event] if event else []
            wrong += [defect] if defect else []
        wrong += [bad.what for bad in batch.bad]
        if batch.end == batch.start:
            return found, wrong


def texts(path: Path) -> list[str]:
    return [event.text for event in read(path)[0] if isinstance(event, Note)]


def told(path: Path) -> list[tuple[str, int]]:
    return [(event.what, event.count) for event in read(path)[0] if isinstance(event, Defect)]
