"""What the Episodes screen asks: pages of episodes by any filter and order, and one episode whole.

Guarantees: pages follow one another by key (`after`), so nothing is shown twice or left out while rows arrive ahead of
it. Rows without the value that they are sorted by come last. At a past moment an episode is as it was then: what ended
later is still running, without cause and reward. Strings that agents made are returned as they are.
"""

import json
from typing import Any

import msgspec

from harbortui.runs.events import ENDED
from harbortui.runs.queries.base import END
from harbortui.runs.queries.finding import COLUMNS, After, EpisodeFilter, Finding, Sort, State
from harbortui.runs.queries.run import RunQueries

COUNTED = 10_000


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
        with self.snapshot():
            finding, lost_before = self._finding(filter, at)
            found = finding.page(sort, descending, limit, after)
            rows = [_row(row, lost_before) for row in found]
            return EpisodePage(rows, (found[-1][1], rows[-1].id, rows[-1].n) if rows and len(rows) == limit else None)

    def episode_count(self, filter: EpisodeFilter | None = None, at: float | None = None, cap: int = COUNTED) -> int:
        """How many there are, counted up to `cap`."""
        with self.snapshot():
            return self._finding(filter, at)[0].count(cap)

    def episode(self, id: str, at: float | None = None) -> list[AttemptDetail]:
        """Every attempt of one episode, oldest first."""
        with self.snapshot():
            finding, lost_before = self._finding(None, at)
            return [self._detail(row, lost_before, END if at is None else at) for row in finding.one(id)]

    def _finding(self, wanted: EpisodeFilter | None, at: float | None) -> tuple[Finding, int]:
        """And the attempt of the run before which whatever did not end is lost."""
        run = self.run(at)
        lost_before = run.attempt + (run.state in ENDED) if run else 0
        with self.snapshot() as connection:
            return Finding(connection, wanted or EpisodeFilter(), at, lost_before), lost_before

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


def _row(row: tuple[Any, ...], lost_before: int) -> EpisodeRow:
    told: dict[str, Any] = dict(zip(COLUMNS, row[2:], strict=True))
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


_TEXTS = ("worker", "trial", "agent", "model", "error", "path")
