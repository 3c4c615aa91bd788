"""How episodes are found by filter and order, in an index of any size, now and at past moments.

Guarantees: what is walked is the index of the filter that leaves least when that is little, else that of the order;
never the whole table. At a past moment most rows are as they were then and are found like those of now; the few that
changed later are put back to what they were, one by one, and merged in.
"""

import sqlite3
from typing import Any, Literal

import msgspec

from harbortui.runs.queries.base import END

Sort = Literal["recent", "reward", "turns", "tokens", "seconds"]
State = Literal["queued", "running", "finished", "lost"]
After = tuple[float | None, str, int]

SORTS = {"recent": "moment", "reward": "reward", "turns": "turns", "tokens": "tokens", "seconds": "seconds"}
FEW = 12_000


class EpisodeFilter(msgspec.Struct, frozen=True):
    """Everything given must hold. Superseded attempts and evaluations are left out unless asked for."""

    task: str | None = None
    cause: str | None = None
    step: int | None = None
    group: str | None = None
    worker: str | None = None
    state: State | None = None
    reward_low: float | None = None
    reward_high: float | None = None
    superseded: bool = False
    eval: bool | None = None


COLUMNS = (
    "id n attempt task grp step policy eval superseded queued started finished moment worker trial agent model "
    "cause reward turns prompt completion seconds cost error path flags"
).split()
_INDEXED = {"task": "task", "cause": "cause", "step": "step", "group": "grp", "worker": "worker"}
_OPEN = ("queued", "running", "lost")
_LATER = {
    "superseded": "superseded",
    "queued": "queued",
    "started": "started worker trial agent model",
    "finished": "finished cause reward turns prompt completion tokens seconds cost error path flags",
}
_CASES = ", ".join(
    f"CASE WHEN {when} <= :at THEN {name} END AS {name}" for when, names in _LATER.items() for name in names.split()
)
_PUT_BACK = (
    "(SELECT *, max(first, coalesce(queued, 0), coalesce(started, 0), coalesce(finished, 0)) AS moment FROM "
    f"(SELECT e, id, n, attempt, task, grp, step, policy, eval, first, {_CASES} FROM episode {{}}))"
)
_CHANGED = _PUT_BACK.format("INDEXED BY episode_span WHERE first <= :at AND moment > :at")
_SETTLED = ", ".join(COLUMNS).replace("superseded", "CASE WHEN superseded <= :at THEN superseded END AS superseded")

Found = tuple[Any, ...]


class Finding:
    """Rows as (number, sort value, *COLUMNS)."""

    def __init__(self, connection: sqlite3.Connection, wanted: EpisodeFilter, at: float | None, lost: int) -> None:
        self._connection = connection
        self._wanted = wanted
        self._past = at is not None
        self._values: dict[str, Any] = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
        self._values |= {"at": END if at is None else at, "lost_before": lost}

    def page(self, sort: Sort, descending: bool, limit: int, after: After | None) -> list[Found]:
        column, values = SORTS[sort], self._values | {"limit": limit}
        if after is not None:
            values |= {"k": after[0], "kid": after[1], "kn": after[2]}
        found: list[Found] = []
        for known in (True, False):
            if (known and after is not None and after[0] is None) or (not known and column == "moment"):
                continue
            order = ", ".join(f"{name} {'DESC' if descending else 'ASC'}" for name in _keys(column, known))
            terms = [f"{column} IS {'NOT ' if known else ''}NULL"]
            if after is not None and known == (after[0] is not None):
                terms.append(_beyond(column, known, descending))
            rest: list[Found] = []
            for columns, source, where in self._sources(sort):
                query = f"SELECT e, {column}, {columns} FROM {source} WHERE {' AND '.join(where + terms)}"
                rest += self._connection.execute(f"{query} ORDER BY {order} LIMIT :limit", values).fetchall()
            found += sorted(rest, key=lambda row: row[1:4] if row[1] is not None else row[2:4], reverse=descending)
            if len(found) >= limit:
                break
        return found[:limit]

    def count(self, cap: int) -> int:
        total = 0
        for _, source, where in self._sources(None):
            query = f"SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {' AND '.join(where) or 1} LIMIT :cap)"
            total += self._connection.execute(query, self._values | {"cap": cap - total}).fetchone()[0]
        return total

    def one(self, id: str) -> list[Found]:
        source = _PUT_BACK.format("WHERE first <= :at")
        query = f"SELECT e, moment, {', '.join(COLUMNS)} FROM {source} WHERE id = :id ORDER BY n"
        return self._connection.execute(query, self._values | {"id": id}).fetchall()

    def _sources(self, sort: Sort | None) -> list[tuple[str, str, list[str]]]:
        """(columns, table, conditions): the rows that nothing changed after the moment, and those put back."""
        gone = "(superseded IS NULL OR superseded > :at)" if self._past else "superseded IS NULL"
        settled = (_SETTLED, f"episode {self._driver(sort)}", self._conditions(gone))
        if not self._past:
            return [settled]
        settled[2].append("moment <= :at")
        return [settled, (", ".join(COLUMNS), _CHANGED, self._conditions("superseded IS NULL"))]

    def _conditions(self, current: str) -> list[str]:
        wanted = self._wanted
        terms = [f"{column} = :{name}" for name, column in _INDEXED.items() if self._values[name] is not None]
        terms += self._rewards()
        if not wanted.superseded or wanted.state in _OPEN:
            terms.append(current)
        if wanted.eval is not None:
            terms.append("eval = :eval")
        if wanted.state == "finished":
            terms.append("finished IS NOT NULL")
        elif wanted.state is not None:
            terms.append("finished IS NULL")
            terms.append(f"attempt {'<' if wanted.state == 'lost' else '>='} :lost_before")
            if wanted.state != "lost":
                terms.append(f"started IS {'NOT ' if wanted.state == 'running' else ''}NULL")
        return terms

    def _rewards(self) -> list[str]:
        signs = {"reward_low": ">=", "reward_high": "<="}
        return [f"reward {sign} :{name}" for name, sign in signs.items() if self._values[name] is not None]

    def _driver(self, sort: Sort | None) -> str:
        """Which index to walk."""
        wanted, reward = self._wanted, self._rewards()
        if wanted.state in _OPEN:
            return f"INDEXED BY episode_{'finished' if self._past else 'open'}"
        tried = [(f"{column} = :{name}", column) for name, column in _INDEXED.items() if self._values[name] is not None]
        ordered = sort == "recent" and len(tried) == 1 and not reward
        if reward:
            cause = ["cause = :cause"] if wanted.cause is not None else []
            tried.append((" AND ".join(cause + reward), "cause_reward" if cause else "reward"))
        if self._past:
            tried.append(("moment <= :at", "moment"))
        counts = sorted((self._at_most(where, index), index) for where, index in tried)
        if ordered:
            return f"INDEXED BY episode_{tried[0][1]}"
        if counts and (counts[0][0] <= FEW or sort is None):
            return f"INDEXED BY episode_{counts[0][1]}"
        if sort is None:
            return ""
        return f"INDEXED BY episode_{'cause_reward' if sort == 'reward' and wanted.cause is not None else SORTS[sort]}"

    def _at_most(self, where: str, index: str) -> int:
        source = f"episode INDEXED BY episode_{index} WHERE {where}"
        query = f"SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {FEW + 1})"
        return int(self._connection.execute(query, self._values).fetchone()[0])


def _keys(column: str, known: bool) -> list[str]:
    return [column, "id", "n"] if known else ["id", "n"]


def _beyond(column: str, known: bool, descending: bool) -> str:
    names, marks = ", ".join(_keys(column, known)), ":k, :kid, :kn" if known else ":kid, :kn"
    return f"({names}) {'<' if descending else '>'} ({marks})"
