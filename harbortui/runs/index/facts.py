"""Taking in everything that is not an episode: small facts kept as they were told, steps, metrics, resources.

Guarantees: a fact is a member of a set (its kind, key, time, process and line), so telling it twice changes nothing.
A step row is superseded from the first moment at which an update of the same or a lower number was told after it, by
a newer attempt of the run or later in the same one (by the monotonic clock, which does not jump), or at which a newer
attempt said that it goes on from an earlier step.
"""

import sqlite3
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from harbortui.runs.events import (
    Acknowledged,
    Activity,
    AlarmChanged,
    CheckpointChanged,
    Defect,
    Event,
    GroupChanged,
    JournalOpened,
    MetricRow,
    Note,
    OperatorAction,
    PolicyPublished,
    ProcessChanged,
    Resources,
    RunChanged,
    StepDone,
    kind_of,
)
from harbortui.runs.index.rollups import Rollups, bounded

STEP_METRICS = (
    "reward", "honest_reward", "reward_low", "reward_high", "solve_rate", "loss", "entropy", "mismatch_kl",
    "grad_norm", "learning_rate", "tokens", "seconds", "episodes",
)  # fmt: skip
NO_STEP = -1

KEYS: dict[type[Event], Callable[[Any, str], str]] = {
    RunChanged: lambda event, process: "",
    ProcessChanged: lambda event, process: event.process,
    Resources: lambda event, process: event.process,
    Activity: lambda event, process: process,
    GroupChanged: lambda event, process: event.id,
    CheckpointChanged: lambda event, process: event.id,
    PolicyPublished: lambda event, process: "",
    AlarmChanged: lambda event, process: event.key,
    OperatorAction: lambda event, process: event.request,
    Note: lambda event, process: "",
    Defect: lambda event, process: process,
    JournalOpened: lambda event, process: event.process,
}


class Facts:
    def __init__(self, connection: sqlite3.Connection, rollups: Rollups) -> None:
        self._connection = connection
        self._rollups = rollups

    def fact(self, event: Event, line: bytes, process: str) -> bool:
        """Keep it; False when it was known."""
        key = KEYS[type(event)](event, process)
        return bool(
            self._connection.execute(
                "INSERT OR IGNORE INTO fact VALUES (?,?,?,?,?,?,?)",
                (kind_of(event), key, event.t, process, line.strip(b"\0").decode(), event.attempt, event.m),
            ).rowcount
        )

    def run(self, event: RunChanged, line: bytes, process: str) -> None:
        if self.fact(event, line, process) and event.resumed_from is not None:
            self._cut(event, event.resumed_from + 1)

    def alarm(self, event: AlarmChanged, line: bytes, process: str) -> None:
        """And the newest word on each alarm apart, as most are long over."""
        if self.fact(event, line, process):
            self._connection.execute(
                "INSERT INTO alarm VALUES (?,?,?,?,?,?) ON CONFLICT (key) DO UPDATE SET attempt = excluded.attempt, "
                "m = excluded.m, t = excluded.t, state = excluded.state, body = excluded.body "
                "WHERE (excluded.attempt, excluded.m, excluded.t, excluded.body) > (attempt, m, t, body)",
                (event.key, event.attempt, event.m, event.t, event.state, line.strip(b"\0").decode()),
            )

    def resources(self, event: Resources, line: bytes, process: str) -> None:
        if not self.fact(event, line, process):
            return
        key = (event.process, int(event.t // 60))
        cpu, use = bounded(event.cpu * 1000), event.gpu_use
        sums = [("cpu", cpu), ("rss", bounded(event.rss))]
        if use is not None:
            sums += [("gpu_use", bounded(use * 1000)), ("gpu_count", 1)]
        if event.load is not None:
            sums.append(("load", bounded(event.load * 1000)))
        highs = [("cpu_high", cpu), ("rss_high", bounded(event.rss))]
        if event.gpu_memory is not None:
            highs.append(("gpu_memory_high", bounded(event.gpu_memory)))
        if event.disk_used is not None:
            highs.append(("disk_used_high", bounded(event.disk_used)))
        self._rollups.add(("minute", key, tuple(sums)))
        self._rollups.highs("minute", key, tuple(highs))

    def step(self, event: StepDone, line: bytes, process: str) -> None:
        text = line.strip(b"\0")
        added = self._connection.execute(
            "INSERT OR IGNORE INTO step VALUES (?,?,?,?,?,?,?)",
            (event.attempt, event.step, event.t, event.m, zlib.crc32(text), None, text.decode()),
        ).rowcount
        if not added:
            return
        self._metrics(event, event.step, {name: getattr(event, name) for name in STEP_METRICS})
        (ended,) = self._connection.execute(
            "SELECT min(t) FROM cut WHERE step <= ? AND (attempt > ? OR attempt = ? AND m > ?)",
            (event.step, event.attempt, event.attempt, event.m),
        ).fetchone()
        if ended is not None:
            self._connection.execute(
                "UPDATE step SET superseded = ? WHERE attempt = ? AND step = ? AND t = ? AND tie = ?",
                (ended, event.attempt, event.step, event.t, zlib.crc32(text)),
            )
        self._cut(event, event.step)

    def _cut(self, event: Event, step: int) -> None:
        self._connection.execute("INSERT OR IGNORE INTO cut VALUES (?,?,?,?)", (event.attempt, event.m, step, event.t))
        self._connection.execute(
            "UPDATE step SET superseded = min(coalesce(superseded, ?), ?) "
            "WHERE step >= ? AND (attempt < ? OR attempt = ? AND m < ?)",
            (event.t, event.t, step, event.attempt, event.attempt, event.m),
        )

    def metrics(self, event: MetricRow, line: bytes, process: str) -> None:
        self._metrics(event, NO_STEP if event.step is None else event.step, event.values)

    def _metrics(self, event: Event, step: int, values: Mapping[str, float | None]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO metric VALUES (?,?,?,?,?)",
            [(name, event.attempt, step, event.t, value) for name, value in values.items() if value is not None],
        )

    def acknowledged(self, event: Acknowledged, line: bytes, process: str) -> None:
        self._connection.execute(
            "INSERT INTO acknowledged VALUES (?,?,?) "
            "ON CONFLICT (process, sequence) DO UPDATE SET t = max(t, excluded.t)",
            (process, event.sequence, event.t),
        )
