"""What the Tasks and Inspect screens ask: tasks, the heat map of task and step, groups."""

import msgspec

from harbortui.runs.index.rollups import MICRO
from harbortui.runs.queries.base import Reader
from harbortui.runs.queries.totals import PLAIN, Totals, totals


class TaskRow(msgspec.Struct, frozen=True):
    task: str
    totals: Totals


class HeatCell(msgspec.Struct, frozen=True):
    """`reward` is the honest mean; None where none of the episodes were the policy's own."""

    task: str
    step: int
    n: int
    own: int
    solved: int
    reward: float | None


class GroupRow(msgspec.Struct, frozen=True):
    id: str
    task: str
    state: str
    attempt: int
    opened: float | None
    t: float
    size: int
    policy: int
    step: int | None
    reason: str
    totals: Totals


_GROUP = [name for name in GroupRow.__struct_fields__ if name != "totals"]
_PLAIN = ", ".join(f"coalesce({name}, 0)" for name in PLAIN.split(", "))


class TaskQueries(Reader):
    def tasks(self, eval: bool = False) -> list[TaskRow]:
        rows = self._rows(f"SELECT task, {PLAIN} FROM task_tally WHERE eval = ? ORDER BY task", int(eval))
        return [TaskRow(task, totals(tally)) for task, *tally in rows]

    def task_heatmap(self, steps: int = 60, eval: bool = False) -> list[HeatCell]:
        """The cells of the last `steps` steps; of a step that was done anew only the newest."""
        with self.snapshot():
            last = self._row("SELECT max(step) FROM step_tally WHERE eval = ?", int(eval))
            first = (last[0] if last and last[0] is not None else 0) - steps
            redone: dict[int, int | None] = {}
            begun: int | None = None
            for attempt, lowest in self._rows("SELECT attempt, min(step) FROM cut GROUP BY attempt ORDER BY 1 DESC"):
                redone[attempt] = begun
                begun = lowest if begun is None else min(begun, lowest)
            newest: dict[tuple[str, int], HeatCell] = {}
            for task, attempt, step, n, own, solved, reward in self._rows(
                "SELECT task, attempt, step, n, own, solved, reward FROM heat WHERE eval = ? AND step > ? "
                "ORDER BY task, attempt, step",
                int(eval),
                first,
            ):
                limit = redone.get(attempt)
                if n and (limit is None or step < limit):
                    newest[task, step] = HeatCell(task, step, n, own, solved, reward / MICRO / own if own else None)
            return list(newest.values())

    def groups(
        self, task: str | None = None, step: int | None = None, state: str | None = None, limit: int = 100
    ) -> list[GroupRow]:
        """Newest first."""
        terms, values = ["1"], []
        for column, value in (("task", task), ("step", step), ("state", state)):
            if value is not None:
                terms.append(f"g.{column} = ?")
                values.append(value)
        return self._groups(f"WHERE {' AND '.join(terms)} ORDER BY g.t DESC, g.id LIMIT ?", *values, limit)

    def group(self, id: str) -> GroupRow | None:
        found = self._groups("WHERE g.id = ?", id)
        return found[0] if found else None

    def _groups(self, rest: str, *values: object) -> list[GroupRow]:
        rows = self._rows(
            "SELECT g.id, g.task, state, attempt, opened, t, size, policy, step, reason, "
            f"{_PLAIN} FROM grp g LEFT JOIN group_tally ON grp = g.id {rest}",
            *values,
        )
        return [GroupRow(**dict(zip(_GROUP, row, strict=False)), totals=totals(row[len(_GROUP) :])) for row in rows]
