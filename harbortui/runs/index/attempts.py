"""Taking in what happens to episodes: rows of attempts, their turns, phases and holds, and the groups they belong to.

Guarantees: rows change only at `flush`, all of a batch at once, and with them the rollups by exactly the difference.
Of several attempts of an episode the newest is the one that counts; each older one knows since when it is superseded.
An episode's step is the one its group was trained in, else the one it was queued for. What is kept in memory is a
copy of rows; `forget` drops it after a rollback.
"""

import json
import sqlite3
import zlib
from collections import OrderedDict

import msgspec

from harbortui.runs.events import (
    EpisodeFinished,
    EpisodeHeld,
    EpisodePhase,
    EpisodeQueued,
    EpisodeStarted,
    EpisodeTurn,
    GroupChanged,
    decode,
)
from harbortui.runs.index.attempt import COLUMNS, Attempt, bucket, parts, phase_parts
from harbortui.runs.index.rollups import Part, Rollups, bounded

KEPT = 8192

_EpisodeEvent = EpisodeQueued | EpisodeStarted | EpisodeFinished | EpisodePhase | EpisodeTurn | EpisodeHeld


class _Known:
    """An episode in memory: its attempts, and what each adds to the rollups as they stand on disk."""

    __slots__ = ("attempts", "lengths", "parts", "stale")

    def __init__(self) -> None:
        self.attempts: dict[int, Attempt] = {}
        self.parts: dict[int, list[Part]] = {}
        self.lengths: dict[int, list[Part]] = {}
        self.stale: set[int] = set()


class Attempts:
    def __init__(self, connection: sqlite3.Connection, rollups: Rollups) -> None:
        self._connection = connection
        self._rollups = rollups
        self.forget()

    def forget(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._dirty: set[str] = set()
        self._groups: set[str] = set()
        self._group_steps: dict[str, int | None] = {}
        self._next = 1 + (self._connection.execute("SELECT max(e) FROM episode").fetchone()[0] or 0)

    # --- one event ---

    def queued(self, event: EpisodeQueued, line: bytes, process: str) -> None:
        row = self._row(event)
        if row.queue(event, zlib.crc32(line)):
            self._dirty.add(event.id)

    def started(self, event: EpisodeStarted, line: bytes, process: str) -> None:
        row = self._row(event)
        if row.start(event, zlib.crc32(line)):
            self._dirty.add(event.id)

    def finished(self, event: EpisodeFinished, line: bytes, process: str) -> None:
        row = self._row(event)
        if row.finish(event, zlib.crc32(line)):
            self._dirty.add(event.id)
            self._known[event.id].stale.add(event.n)

    def turn(self, event: EpisodeTurn, line: bytes, process: str) -> None:
        row = self._row(event)
        added = self._connection.execute(
            "INSERT OR IGNORE INTO turn VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            (
                row.e,
                event.turn,
                event.t,
                zlib.crc32(line),
                event.prompt_tokens,
                event.completion_tokens,
                event.context,
                event.policy,
                event.seconds,
                event.logprob,
                json.dumps(event.commands, ensure_ascii=False) if event.commands else None,
            ),
        ).rowcount
        if added:
            tokens = (("prompt", bounded(event.prompt_tokens)), ("completion", bounded(event.completion_tokens)))
            self._rollups.add(("pace", (bucket(event.t),), (("told", 1), *tokens)))

    def phase(self, event: EpisodePhase, line: bytes, process: str) -> None:
        row = self._row(event)
        added = self._connection.execute(
            "INSERT OR IGNORE INTO phase VALUES (?,?,?)", (row.e, event.t, event.phase)
        ).rowcount
        self._lengthen(row, added)

    def held(self, event: EpisodeHeld, line: bytes, process: str) -> None:
        row = self._row(event)
        added = self._connection.execute(
            "INSERT OR IGNORE INTO held VALUES (?,?,?,?)", (row.e, event.t, int(event.held), event.seconds)
        ).rowcount
        self._lengthen(row, added)

    def group(self, event: GroupChanged, line: bytes, process: str) -> None:
        self._groups.add(event.id)

    def _lengthen(self, row: Attempt, added: int) -> None:
        if added and row.finished is not None:
            self._known[row.id].stale.add(row.n)
            self._dirty.add(row.id)

    def _row(self, event: _EpisodeEvent) -> Attempt:
        known = self._known.get(event.id)
        if known is None:
            known = self._load(event.id)
        row = known.attempts.get(event.n)
        if row is None:
            row = known.attempts[event.n] = Attempt(self._next, event.id, event.n)
            known.parts[event.n] = known.lengths[event.n] = []
            self._next += 1
        if row.touch(event):
            self._dirty.add(event.id)
        return row

    def _load(self, id: str) -> _Known:
        known = self._known[id] = _Known()
        for values in self._connection.execute(f"SELECT {', '.join(COLUMNS)} FROM episode WHERE id = ?", (id,)):
            row = Attempt(*values)
            known.attempts[row.n] = row
            known.parts[row.n] = parts(row)
            known.lengths[row.n] = self._lengths(row)
        return known

    def _lengths(self, row: Attempt) -> list[Part]:
        if row.finished is None:
            return []
        phases = self._connection.execute("SELECT t, phase FROM phase WHERE e = ?", (row.e,)).fetchall()
        if not phases:
            return []
        held = self._connection.execute("SELECT t, seconds FROM held WHERE e = ? AND held = 0", (row.e,)).fetchall()
        return phase_parts(phases, held, row.finished)

    # --- a batch ---

    def flush(self) -> None:
        for group in self._groups:
            self._fold(group)
        self._groups.clear()
        rows = []
        for episode in self._dirty:
            rows += self._settle(self._known[episode])
        self._dirty.clear()
        self._connection.executemany(_REPLACE, rows)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        if len(self._group_steps) > KEPT:
            self._group_steps.clear()

    def _settle(self, known: _Known) -> list[tuple[object, ...]]:
        """Bring an episode's rows and what they add to the rollups up to date."""
        rows = []
        newer: float | None = None
        for n in sorted(known.attempts, reverse=True):
            row = known.attempts[n]
            row.superseded = newer
            newer = row.first if newer is None else min(newer, row.first)
            row.derive(self._step_of(row.grp))
            now = parts(row)
            if now != known.parts[n]:
                self._rollups.exchange(known.parts[n], now)
                known.parts[n] = now
            if n in known.stale:
                lengths = self._lengths(row)
                self._rollups.exchange(known.lengths[n], lengths)
                known.lengths[n] = lengths
            rows.append(msgspec.structs.astuple(row))
        known.stale.clear()
        return rows

    def _step_of(self, group: str) -> int | None:
        if not group:
            return None
        if group not in self._group_steps:
            found = self._connection.execute("SELECT step FROM grp WHERE id = ?", (group,)).fetchone()
            self._group_steps[group] = found[0] if found else None
        return self._group_steps[group]

    def _fold(self, group: str) -> None:
        """A group is what its events say, told in order of time."""
        before = self._step_of(group)
        told = self._connection.execute(
            "SELECT body FROM fact WHERE kind = 'group' AND key = ? ORDER BY t, body", (group,)
        ).fetchall()
        events = [event for (body,) in told if isinstance(event := decode(body.encode()), GroupChanged)]
        events.reverse()
        step = next((event.step for event in events if event.step is not None), None)
        self._connection.execute(
            "INSERT OR REPLACE INTO grp VALUES (?,?,?,?,?,?,?,?,?,?)",
            (
                group,
                next((event.task for event in events if event.task), ""),
                events[0].state,
                max(event.attempt for event in events),
                next((event.t for event in reversed(events) if event.state == "opened"), None),
                events[0].t,
                next((event.size for event in events if event.size), 0),
                next((event.policy for event in events if event.policy), 0),
                step,
                next((event.reason for event in events if event.reason), ""),
            ),
        )
        self._group_steps[group] = step
        if step != before:
            members = self._connection.execute("SELECT DISTINCT id FROM episode WHERE grp = ?", (group,)).fetchall()
            for (episode,) in members:
                if episode not in self._known:
                    self._load(episode)
                self._dirty.add(episode)


_REPLACE = f"INSERT OR REPLACE INTO episode ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
