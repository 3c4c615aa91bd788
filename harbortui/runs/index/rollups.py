"""Rollups: sums of whole numbers that screens read instead of scanning rows.

Guarantees: every rollup row is the sum (or maximum) over rows of the index of a function of that row, kept up to date
by adding what a changed row now contributes and taking away what it did before. Only whole numbers are added
(rewards in millionths), so the order of events never shows. A row to which nothing contributes is removed.
"""

import math
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from harbortui.runs.events import CAUSES

BUCKET_SECONDS = 10
SLOT_SECONDS = 1800
MICRO = 1_000_000
_LIMIT = 2**50

TALLY = (
    "n", "own", "solved", "retried", "reward", "turns", "prompt", "completion", "ms",
    *(f"c_{cause}" for cause in CAUSES),
)  # fmt: skip

Pairs = tuple[tuple[str, int], ...]


class Spec(NamedTuple):
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    highs: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, "parts", *self.sums, *self.highs)


SPECS = {
    "bucket": Spec(("eval", "start"), ("started", "ended", *TALLY)),
    "pace": Spec(("start",), ("told", "prompt", "completion")),
    "task_tally": Spec(("eval", "task"), TALLY),
    "step_tally": Spec(("eval", "attempt", "step"), TALLY),
    "heat": Spec(("eval", "task", "attempt", "step"), TALLY),
    "group_tally": Spec(("grp",), TALLY),
    "phase_length": Spec(("phase", "slot", "bin"), ()),
    "minute": Spec(
        ("process", "minute"),
        ("cpu", "rss", "gpu_use", "gpu_count", "load"),
        ("cpu_high", "rss_high", "gpu_memory_high", "disk_used_high"),
    ),
}

Key = tuple[int | str, ...]
Part = tuple[str, Key, Pairs]


def bounded(value: float) -> int:
    """A whole number that sums cannot overflow with."""
    return int(min(max(value, -_LIMIT), _LIMIT)) if math.isfinite(value) else 0


def micro(value: float) -> int:
    return bounded(round(value * MICRO)) if abs(value) < _LIMIT else bounded(value)


def bin_of(seconds: float) -> int:
    """A duration's place in a histogram with eight bins per doubling; 0 is a millisecond or less."""
    return max(0, min(400, math.ceil(8 * math.log2(max(seconds, 1e-3) * 1000))))


def seconds_of(bin_: int) -> float:
    """The middle of a bin."""
    return float(2 ** ((bin_ - 0.5) / 8) / 1000) if bin_ else 0.0


class Rollups:
    """Collects changes in memory and writes them in one go."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._changes: dict[str, dict[Key, dict[str, int]]] = {name: {} for name in SPECS}

    def add(self, part: Part, sign: int = 1) -> None:
        table, key, pairs = part
        rows = self._changes[table]
        row = rows.get(key)
        if row is None:
            row = rows[key] = {"parts": 0}
        row["parts"] += sign
        for column, value in pairs:
            row[column] = row.get(column, 0) + sign * value

    def exchange(self, before: Iterable[Part], now: Iterable[Part]) -> None:
        for part in before:
            self.add(part, -1)
        for part in now:
            self.add(part)

    def highs(self, table: str, key: Key, pairs: Pairs) -> None:
        row = self._changes[table].setdefault(key, {"parts": 0})
        for column, value in pairs:
            row[column] = max(row.get(column, value), value)

    def clear(self) -> None:
        for rows in self._changes.values():
            rows.clear()

    def write(self) -> None:
        for name, rows in self._changes.items():
            if rows:
                spec = SPECS[name]
                self._connection.executemany(_UPSERT[name], (_values(spec, key, row) for key, row in rows.items()))
                self._connection.executemany(_PRUNE[name], [key for key, row in rows.items() if row["parts"] <= 0])
        self.clear()


def _values(spec: Spec, key: Key, row: dict[str, int]) -> tuple[int | str | None, ...]:
    get = row.get
    return (*key, row["parts"], *[get(c, 0) for c in spec.sums], *[get(c) for c in spec.highs])


def _upsert(name: str, spec: Spec) -> str:
    sets = [f"{c} = {c} + excluded.{c}" for c in ("parts", *spec.sums)]
    sets += [f"{c} = max(coalesce({c}, excluded.{c}), coalesce(excluded.{c}, {c}))" for c in spec.highs]
    marks = ", ".join("?" * len(spec.columns))
    return (
        f"INSERT INTO {name} ({', '.join(spec.columns)}) VALUES ({marks}) "
        f"ON CONFLICT ({', '.join(spec.keys)}) DO UPDATE SET {', '.join(sets)}"
    )


def ddl(name: str, spec: Spec) -> str:
    types = {"task": "TEXT", "grp": "TEXT", "phase": "TEXT", "process": "TEXT"}
    columns = [f"{c} {types.get(c, 'INTEGER')} NOT NULL" for c in (*spec.keys, "parts", *spec.sums)]
    columns += [f"{c} INTEGER" for c in spec.highs]
    return f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(spec.keys)})) WITHOUT ROWID"


_UPSERT = {name: _upsert(name, spec) for name, spec in SPECS.items()}
_PRUNE = {
    name: f"DELETE FROM {name} WHERE parts <= 0 AND {' AND '.join(f'{k} = ?' for k in spec.keys)}"
    for name, spec in SPECS.items()
}
