"""What the Metrics screen asks: steps, and series of any named value.

Guarantees: what an older life of the run did after the point from which a newer one went on is left out (or marked,
in `steps`). A series has at most about `max_points` points; each keeps the lowest, the highest and the last value of
its stretch, so that no spike is lost by thinning.
"""

from typing import Any

import msgspec

from harbortui.runs.events import StepDone, decode
from harbortui.runs.index.facts import NO_STEP
from harbortui.runs.queries.base import END, Reader
from harbortui.runs.queries.totals import PLAIN, Totals, totals


class StepRow(msgspec.Struct, frozen=True):
    """A step as told; `counted` is the sum over its own episodes, None where none are known by step."""

    step: int
    attempt: int
    t: float
    superseded: bool
    policy: int
    reward: float | None
    honest_reward: float | None
    reward_low: float | None
    reward_high: float | None
    solve_rate: float | None
    loss: float | None
    entropy: float | None
    mismatch_kl: float | None
    grad_norm: float | None
    learning_rate: float | None
    tokens: int
    seconds: float
    episodes: int
    left_out: dict[str, int]
    total: int | None
    counted: Totals | None


class Point(msgspec.Struct, frozen=True):
    x: float
    low: float
    high: float
    last: float


class Series(msgspec.Struct, frozen=True):
    """`over` says what x is: the step, or the time of values that were told without one."""

    name: str
    over: str
    points: list[Point]


class MetricQueries(Reader):
    def steps(
        self, limit: int = 200, before: int | None = None, superseded: bool = False, at: float | None = None
    ) -> list[StepRow]:
        """The last steps (before a number), in order; superseded ones only when asked for."""
        current = "1" if superseded else "(superseded IS NULL OR superseded > :at)"
        with self.snapshot() as connection:
            found = connection.execute(
                f"SELECT body, superseded FROM step WHERE t <= :at AND step < :before AND {current} "
                "ORDER BY step DESC, attempt DESC, t DESC, tie DESC LIMIT :limit",
                {"at": END if at is None else at, "before": 2**62 if before is None else before, "limit": limit},
            ).fetchall()
            rows: list[StepRow] = []
            for body, ended in found:
                event = decode(body.encode())
                assert isinstance(event, StepDone)
                gone = ended is not None and (at is None or ended <= at)
                if not rows or superseded or rows[-1].step != event.step:
                    rows.append(self._step(event, gone))
            return rows[::-1]

    def _step(self, event: StepDone, superseded: bool) -> StepRow:
        counted = self._row(
            f"SELECT {PLAIN} FROM step_tally WHERE eval = 0 AND attempt = ? AND step = ?", event.attempt, event.step
        )
        told = {name: getattr(event, name) for name in _TOLD}
        return StepRow(**told, superseded=superseded, counted=totals(counted) if counted else None)

    def metric_names(self) -> list[str]:
        rows = self._rows(
            "WITH RECURSIVE known(name) AS (SELECT min(name) FROM metric UNION ALL "
            "SELECT (SELECT min(name) FROM metric WHERE name > known.name) FROM known WHERE name IS NOT NULL) "
            "SELECT name FROM known WHERE name IS NOT NULL"
        )
        return [name for (name,) in rows]

    def series(self, name: str, max_points: int = 400, at: float | None = None) -> Series:
        with self.snapshot() as connection:
            values: dict[str, Any] = {"name": name, "at": END if at is None else at, "none": NO_STEP}
            where = "FROM metric WHERE name = :name AND t <= :at AND step"
            stepped = connection.execute(f"SELECT 1 {where} > :none LIMIT 1", values).fetchone() is not None
            if stepped:
                x, over = "step", "step"
                where += " > :none" + self._superseded(values)
                rows = f"(SELECT step, value, max(t) AS t {where} GROUP BY attempt, step)"
            else:
                x, over = "t", "time"
                where += " = :none"
                rows = f"(SELECT t, value {where})"
            count, low, high = connection.execute(f"SELECT count(*), min({x}), max({x}) {where}", values).fetchone()
            if count <= max_points:
                found = connection.execute(f"SELECT {x}, value FROM {rows} ORDER BY {x}, t, value", values)
                return Series(name, over, [Point(x, value, value, value) for x, value in found])
            values |= {"low": low, "width": max((high - low) / max_points, 1e-9)}
            slot = f"CAST(({x} - :low) / :width AS INTEGER)"
            grouped = f"FROM {rows} GROUP BY {slot} ORDER BY {slot}"
            ends = connection.execute(f"SELECT max({x}), value {grouped}", values).fetchall()
            spans = connection.execute(f"SELECT min(value), max(value) {grouped}", values).fetchall()
            points = [Point(x, low, high, last) for (x, last), (low, high) in zip(ends, spans, strict=True)]
            return Series(name, over, points)

    def _superseded(self, values: dict[str, Any]) -> str:
        """Conditions that leave out what a newer life of the run did anew."""
        terms = []
        begun: int | None = None
        for attempt, first in self._rows(
            "SELECT attempt, min(step) FROM cut WHERE t <= ? GROUP BY attempt ORDER BY attempt DESC", values["at"]
        ):
            if begun is not None:
                values |= {f"a{attempt}": attempt, f"s{attempt}": begun}
                terms.append(f" AND NOT (attempt = :a{attempt} AND step >= :s{attempt})")
            begun = first if begun is None else min(begun, first)
        for number, (attempt, last, first) in enumerate(
            self._rows(
                "SELECT attempt, max(t), min(step) FROM step WHERE superseded <= ? GROUP BY attempt, superseded",
                values["at"],
            )
        ):
            values |= {f"ra{number}": attempt, f"rt{number}": last, f"rs{number}": first}
            terms.append(f" AND NOT (attempt = :ra{number} AND step >= :rs{number} AND t <= :rt{number})")
        return "".join(terms)


_TOLD = [name for name in StepRow.__struct_fields__ if name not in ("superseded", "counted")]
