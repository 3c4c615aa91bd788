"""From lines of journals to rows of the index, one transaction per batch.

Guarantees: a batch's rows, rollups and offsets are committed together or not at all, so that a killed indexer goes on
where the last batch ended. A line that says nothing understood is counted with its journal and kind of defect, an
event of an unknown kind by its kind. Which journal a line stood in matters only for the name of the process.

On failure: what the database raises goes to the caller, after a rollback; memory is then as the disk has it.
"""

import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from harbortui.runs.events import (
    Acknowledged,
    AlarmChanged,
    EpisodeFinished,
    EpisodeHeld,
    EpisodePhase,
    EpisodeQueued,
    EpisodeStarted,
    EpisodeTurn,
    Event,
    GroupChanged,
    MetricRow,
    Resources,
    RunChanged,
    StepDone,
    Unknown,
)
from harbortui.runs.index.attempts import Attempts
from harbortui.runs.index.facts import KEYS, Facts
from harbortui.runs.index.rollups import Rollups
from harbortui.runs.lines import interpret

Handler = Callable[[Any, bytes, str], object]


class Ingest:
    """Use as a context manager around one batch: leaving it commits, an exception takes everything back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rollups = Rollups(connection)
        self._attempts = attempts = Attempts(connection, self._rollups)
        facts = Facts(connection, self._rollups)
        self._handlers: dict[type[Event], Handler] = dict.fromkeys(KEYS, facts.fact)
        self._handlers |= {
            EpisodeQueued: attempts.queued,
            EpisodeStarted: attempts.started,
            EpisodePhase: attempts.phase,
            EpisodeTurn: attempts.turn,
            EpisodeHeld: attempts.held,
            EpisodeFinished: attempts.finished,
            RunChanged: facts.run,
            AlarmChanged: facts.alarm,
            Resources: facts.resources,
            StepDone: facts.step,
            MetricRow: facts.metrics,
            Acknowledged: facts.acknowledged,
        }
        self._facts = facts
        self._handlers[GroupChanged] = self._group
        self._reset()

    def _reset(self) -> None:
        self._bad: dict[tuple[str, str], tuple[int, int]] = {}
        self._unknown: dict[str, int] = {}
        self._first, self._last = float("inf"), float("-inf")
        self.events = 0

    def __enter__(self) -> Self:
        self._reset()
        self._connection.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self._flush()
                self._connection.execute("COMMIT")
                return
        except BaseException:
            self._take_back()
            raise
        self._take_back()

    def _take_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._rollups.clear()
        self._attempts.forget()

    def lines(self, journal: str, process: str, lines: list[bytes], offset: int) -> float:
        """Take lines that stand in a journal from an offset on; the time of the last event among them, or 0."""
        last = 0.0
        handlers = self._handlers
        for line in lines:
            event, defect = interpret(line)
            at, offset = offset, offset + len(line) + 1
            if defect:
                self.bad(journal, defect, at)
            if isinstance(event, Event):
                try:
                    handlers[type(event)](event, line, process)
                except (ValueError, TypeError, OverflowError):
                    self.bad(journal, "cannot be indexed", at)
                    continue
                self.events += 1
                last = event.t
                if last > self._last:
                    self._last = last
                if last < self._first:
                    self._first = last
            elif isinstance(event, Unknown):
                self._unknown[event.kind] = self._unknown.get(event.kind, 0) + 1
        return last

    def bad(self, journal: str, what: str, offset: int) -> None:
        count, first = self._bad.get((journal, what), (0, offset))
        self._bad[journal, what] = (count + 1, min(first, offset))

    def _group(self, event: GroupChanged, line: bytes, process: str) -> None:
        self._facts.fact(event, line, process)
        self._attempts.group(event, line, process)

    def _flush(self) -> None:
        self._attempts.flush()
        self._rollups.write()
        self._connection.executemany(
            "INSERT INTO bad_line VALUES (?,?,?,?) ON CONFLICT (journal, what) "
            "DO UPDATE SET count = count + excluded.count, first = min(first, excluded.first)",
            [(*key, *value) for key, value in self._bad.items()],
        )
        self._connection.executemany(
            "INSERT INTO unknown VALUES (?,?) ON CONFLICT (kind) DO UPDATE SET count = count + excluded.count",
            list(self._unknown.items()),
        )
        if self.events:
            self._connection.execute(
                "INSERT INTO extent VALUES (0,?,?) ON CONFLICT (key) "
                "DO UPDATE SET first = min(first, excluded.first), last = max(last, excluded.last)",
                (self._first, self._last),
            )
