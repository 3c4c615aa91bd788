"""What the Episodes screen asks: pages of episodes by any filter and order, and one episode whole.

Guarantees: pages follow one another by key (`after`), so nothing is shown twice or left out while rows arrive ahead of
it. Rows without the value that they are sorted by come last. At a past moment an episode is as it was then: what ended
later is still running, without cause and reward. Strings that agents made are returned as they are.
"""

import json
from typing import Any, Literal

import msgspec

from harbortui.runs.events import ENDED
from harbortui.runs.queries.base import END
from harbortui.runs.queries.run import RunQueries

Sort = Literal["recent", "reward", "turns", "tokens", "seconds"]
State = Literal["queued", "running", "finished", "lost"]
After = tuple[float | None, str, int]

SORTS = {"recent": "moment", "reward": "reward", "turns": "turns", "tokens": "tokens", "seconds": "seconds"}
FEW = 12_000
COUNTED = 20_000


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


class EpisodeRow(msgspec.Struct, frozen=True):
    """One attempt of an episode. `lost`: begun in an attempt of the run that ended without telling its end."""

    id: str
    n: int
    attempt: int
    task: str
    group: str
    step: int | None
    policy: int
    eval: bool
    state: State
    superseded: bool
    worker: str
    trial: str
    agent: str
    model: str
    queued: float | None
    started: float | None
    finished: float | None
    moment: float
    cause: str | None
    reward: float | None
    turns: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float | None
    cost: float | None
    error: str
    path: str
    flags: list[str]


class EpisodePage(msgspec.Struct, frozen=True):
    rows: list[EpisodeRow]
    after: After | None


class Phase(msgspec.Struct, frozen=True):
    phase: str
    began: float
    seconds: float | None


class Turn(msgspec.Struct, frozen=True):
    turn: int
    t: float
    prompt_tokens: int
    completion_tokens: int
    context: float | None
    policy: int
    seconds: float | None
    logprob: float | None
    commands: list[str]


class Hold(msgspec.Struct, frozen=True):
    t: float
    held: bool
    seconds: float


class AttemptDetail(msgspec.Struct, frozen=True):
    row: EpisodeRow
    phases: list[Phase]
    turns: list[Turn]
    holds: list[Hold]


_STABLE = "e, id, n, attempt, task, grp, step, policy, eval, first"
_COLUMNS = (
    "id, n, attempt, task, grp, step, policy, eval, superseded, queued, started, finished, moment, "
    "worker, trial, agent, model, cause, reward, turns, prompt, completion, seconds, cost, error, path, flags"
)
_THEN = {
    "superseded": "superseded",
    "queued": "queued",
    "started": "started worker trial agent model",
    "finished": "finished cause reward turns prompt completion tokens seconds cost error path flags",
}
_PAST = ", ".join(
    f"CASE WHEN {when} <= :at THEN {name} END AS {name}" for when, names in _THEN.items() for name in names.split()
)


class EpisodeQueries(RunQueries):
    def episodes(
        self,
        filter: EpisodeFilter | None = None,
        sort: Sort = "recent",
        descending: bool = True,
        limit: int = 50,
        after: After | None = None,
        at: float | None = None,
    ) -> EpisodePage:
        wanted = filter or EpisodeFilter()
        column = SORTS[sort]
        with self.snapshot():
            values, lost_before = self._values(wanted, at)
            where = _conditions(wanted)
            source = f"episode {self._driver(wanted, sort, values)}" if at is None else _past()
            order = "DESC" if descending else "ASC"
            found: list[tuple[Any, ...]] = []
            key = after
            for known in (True, False):
                if len(found) >= limit or (known and key is not None and key[0] is None):
                    continue
                if not known and column == "moment":
                    break
                terms = [*where, f"{column} IS {'NOT ' if known else ''}NULL"]
                if key is not None and (key[0] is not None) == known:
                    terms.append(_beyond(column if known else "", descending))
                    values |= {"k": key[0], "kid": key[1], "kn": key[2]}
                by = f"{column} {order}, id {order}, n {order}" if known else f"id {order}, n {order}"
                query = f"SELECT e, {_COLUMNS} FROM {source} WHERE {' AND '.join(terms)} ORDER BY {by} LIMIT :limit"
                with self.snapshot() as connection:
                    found += connection.execute(query, values | {"limit": limit - len(found)}).fetchall()
            rows = [_row(row, lost_before) for row in found]
            last = rows[-1] if len(rows) == limit else None
            return EpisodePage(rows, (_sorted_by(last, sort), last.id, last.n) if last else None)

    def episode_count(self, filter: EpisodeFilter | None = None, at: float | None = None, cap: int = COUNTED) -> int:
        """How many there are, counted up to `cap`."""
        wanted = filter or EpisodeFilter()
        with self.snapshot() as connection:
            values, _ = self._values(wanted, at)
            where = " AND ".join(_conditions(wanted)) or "1"
            source = f"episode {self._driver(wanted, None, values)}" if at is None else _past()
            query = f"SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT :cap)"
            return int(connection.execute(query, values | {"cap": cap}).fetchone()[0])

    def episode(self, id: str, at: float | None = None) -> list[AttemptDetail]:
        """Every attempt of one episode, oldest first."""
        with self.snapshot() as connection:
            values, lost_before = self._values(EpisodeFilter(), at)
            source = "episode" if at is None else _past()
            found = connection.execute(
                f"SELECT e, {_COLUMNS} FROM {source} WHERE id = :id ORDER BY n", values | {"id": id}
            ).fetchall()
            return [self._detail(row, lost_before, values["at"]) for row in found]

    # --- parts ---

    def _values(self, wanted: EpisodeFilter, at: float | None) -> tuple[dict[str, Any], int]:
        """The values of all conditions; and the attempt of the run before which whatever did not end is lost."""
        run = self.run(at)
        lost_before = run.attempt + (run.state in ENDED) if run else 0
        values: dict[str, Any] = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
        return values | {"at": END if at is None else at, "lost_before": lost_before}, lost_before

    def _driver(self, wanted: EpisodeFilter, sort: Sort | None, values: dict[str, Any]) -> str:
        """Which index to walk: that of the filter which leaves least when it is little, else of the order asked for."""
        if wanted.state in ("queued", "running", "lost"):
            return "INDEXED BY episode_open"
        tried = [(f"{column} = :{name}", column) for name, column in _INDEXED.items() if values[name] is not None]
        if reward := _rewards(wanted):
            cause = ["cause = :cause"] if wanted.cause is not None else []
            tried.append((" AND ".join(cause + reward), "cause_reward" if cause else "reward"))
        counts = sorted((self._at_most(where, index, values), index) for where, index in tried)
        if counts and (counts[0][0] <= FEW or sort is None or (sort == "recent" and len(counts) == 1 and not reward)):
            return f"INDEXED BY episode_{counts[0][1]}"
        if sort is None:
            return ""
        by_cause = sort == "reward" and wanted.cause is not None
        return f"INDEXED BY episode_{'cause_reward' if by_cause else SORTS[sort]}"

    def _at_most(self, where: str, index: str, values: dict[str, Any]) -> int:
        with self.snapshot() as connection:
            query = (
                f"SELECT count(*) FROM (SELECT 1 FROM episode INDEXED BY episode_{index} WHERE {where} LIMIT {FEW + 1})"
            )
            return int(connection.execute(query, values).fetchone()[0])

    def _detail(self, row: tuple[Any, ...], lost_before: int, at: float) -> AttemptDetail:
        e, shown = row[0], _row(row, lost_before)
        phases = self._rows("SELECT t, phase FROM phase WHERE e = ? AND t <= ? ORDER BY t, phase", e, at)
        ends = [*(t for t, _ in phases[1:]), shown.finished]
        turns: dict[int, tuple[Any, ...]] = {}
        for told in self._rows("SELECT * FROM turn WHERE e = ? AND t <= ? ORDER BY turn, t, tie", e, at):
            turns[told[1]] = told
        return AttemptDetail(
            row=shown,
            phases=[
                Phase(phase, t, None if end is None else max(0.0, end - t))
                for (t, phase), end in zip(phases, ends, strict=False)
            ],
            turns=[
                Turn(turn, t, prompt, completion, context, policy, seconds, logprob, json.loads(commands or "[]"))
                for _, turn, t, _, prompt, completion, context, policy, seconds, logprob, commands in turns.values()
            ],
            holds=[
                Hold(t, bool(held), seconds)
                for t, held, seconds in self._rows(
                    "SELECT t, held, seconds FROM held WHERE e = ? AND t <= ? ORDER BY t, held", e, at
                )
            ],
        )


_INDEXED = {"task": "task", "cause": "cause", "step": "step", "group": "grp", "worker": "worker"}


def _past() -> str:
    """The table as it was at a moment."""
    return (
        "(SELECT *, max(first, coalesce(queued, 0), coalesce(started, 0), coalesce(finished, 0)) AS moment "
        f"FROM (SELECT {_STABLE}, {_PAST} FROM episode WHERE first <= :at))"
    )


def _conditions(wanted: EpisodeFilter) -> list[str]:
    terms = [f"{column} = :{name}" for name, column in _INDEXED.items() if getattr(wanted, name) is not None]
    terms += _rewards(wanted)
    if not wanted.superseded or wanted.state in ("queued", "running", "lost"):
        terms.append("superseded IS NULL")
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


def _rewards(wanted: EpisodeFilter) -> list[str]:
    return [
        f"reward {sign} :{name}"
        for name, sign in (("reward_low", ">="), ("reward_high", "<="))
        if getattr(wanted, name) is not None
    ]


def _beyond(column: str, descending: bool) -> str:
    sign = "<" if descending else ">"
    return f"({column}, id, n) {sign} (:k, :kid, :kn)" if column else f"(id, n) {sign} (:kid, :kn)"


def _row(row: tuple[Any, ...], lost_before: int) -> EpisodeRow:
    told: dict[str, Any] = dict(zip(_NAMES, row[1:], strict=True))
    superseded = told["superseded"] is not None
    state: State = "queued" if told["started"] is None else "running"
    if told["finished"] is not None:
        state = "finished"
    elif superseded or told["attempt"] < lost_before:
        state = "lost"
    told |= {name: told[name] or "" for name in _TEXTS}
    told |= {"state": state, "superseded": superseded, "eval": bool(told["eval"]), "group": told.pop("grp")}
    told |= {"prompt_tokens": told.pop("prompt"), "completion_tokens": told.pop("completion")}
    told["flags"] = json.loads(told["flags"] or "[]")
    return EpisodeRow(**told)


def _sorted_by(row: EpisodeRow, sort: Sort) -> float | None:
    if sort == "tokens":
        return None if row.completion_tokens is None else float((row.prompt_tokens or 0) + row.completion_tokens)
    return {"recent": row.moment, "reward": row.reward, "turns": row.turns, "seconds": row.seconds}[sort]


_NAMES = [name.strip() for name in _COLUMNS.split(",")]
_TEXTS = ("worker", "trial", "agent", "model", "error", "path")
