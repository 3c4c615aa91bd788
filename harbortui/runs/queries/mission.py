"""What the Mission screen asks: progress, rates, what lives now, and totals; now or at a past moment.

Guarantees: an episode is live from its start to its end, while no newer attempt of it began, in the run's current
attempt, as long as the run has not ended. Totals at a moment are exact: whole buckets, and the rows of the last one.
Rates are over the last `window` seconds or the life of the run if that is shorter, to ten seconds.
"""

import itertools
import statistics
import time
from typing import Any

import msgspec

from harbortui.runs.events import ENDED, PolicyPublished, StepDone
from harbortui.runs.index.attempt import COLUMNS, Attempt, bucket, tally
from harbortui.runs.index.rollups import BUCKET_SECONDS, TALLY
from harbortui.runs.queries.base import END
from harbortui.runs.queries.run import RunQueries, RunRow
from harbortui.runs.queries.totals import SUMS, Totals, totals

WINDOW = 300.0
STEPS_FOR_PACE = 20


class LiveEpisode(msgspec.Struct, frozen=True):
    id: str
    n: int
    task: str
    group: str
    step: int | None
    policy: int
    worker: str
    trial: str
    started: float
    age: float
    phase: str
    phase_since: float | None
    turn: int
    turn_at: float | None
    context: float | None
    completion_tokens: int
    held: bool


class Live(msgspec.Struct, frozen=True):
    """Those that live, oldest first; `rows` may be fewer than `count`."""

    count: int
    held: int
    median_age: float | None
    rows: list[LiveEpisode]


class Rate(msgspec.Struct, frozen=True):
    """What happened in the `seconds` from `start` on."""

    start: float
    seconds: float
    started: int
    ended: int
    solved: int
    completion_tokens: int


class Mission(msgspec.Struct, frozen=True):
    moment: float
    run: RunRow | None
    step: int | None
    total: int | None
    step_at: float | None
    policy: int | None
    reward: float | None
    honest_reward: float | None
    loss: float | None
    solve_rate: float | None
    seconds_per_step: float | None
    eta_seconds: float | None
    window: float
    episodes_per_minute: float
    tokens_per_minute: float
    live: int
    held: int
    queued: int
    totals: Totals
    recent: Totals


class MissionQueries(RunQueries):
    def moment(self, at: float | None = None, run: RunRow | None = None) -> float:
        """The moment that is shown: the one asked for, else now, else (of a run that ended) its end."""
        if at is not None:
            return at
        run = run or self.run()
        return self.last_moment() if run and run.ended else time.time()

    def mission(self, at: float | None = None, window: float = WINDOW) -> Mission:
        with self.snapshot():
            run = self.run(at)
            moment = self.moment(at, run)
            steps = self._newest_steps(at)
            last = steps[0] if steps else None
            pace = _pace(steps)
            left = last.total - last.step if last and last.total is not None else None
            policy = self._last(PolicyPublished, "", at)
            elapsed, ended, tokens, recent = self._recent(at, moment, window)
            live, held = self.running(at)
            return Mission(
                moment=moment,
                run=run,
                step=last.step if last else None,
                total=last.total if last else None,
                step_at=last.t if last else None,
                policy=policy.policy if policy else None,
                reward=last.reward if last else None,
                honest_reward=last.honest_reward if last else None,
                loss=last.loss if last else None,
                solve_rate=last.solve_rate if last else None,
                seconds_per_step=pace,
                eta_seconds=max(0, left) * pace if left is not None and pace is not None else None,
                window=elapsed,
                episodes_per_minute=60 * ended / elapsed,
                tokens_per_minute=60 * tokens / elapsed,
                live=live,
                held=held,
                queued=self._count("started IS NULL", at),
                totals=self.totals(at),
                recent=recent,
            )

    def running(self, at: float | None = None) -> tuple[int, int]:
        """How many episodes live, and how many of them are held at their next model call."""
        with self.snapshot():
            return self._count("started IS NOT NULL", at), self._count(f"started IS NOT NULL AND ({_HELD}) = 1", at)

    def live_episodes(self, at: float | None = None, limit: int = 200) -> Live:
        with self.snapshot() as connection:
            where, values = self._open("started IS NOT NULL", at)
            moment = self.moment(at)
            begun = [row[0] for row in connection.execute(f"SELECT started FROM episode {where}", values)]
            held = self.running(at)[1]
            columns = "e, id, n, task, coalesce(grp, ''), step, coalesce(policy, 0), worker, trial, started"
            found = connection.execute(f"SELECT {columns} FROM episode {where} ORDER BY started, id LIMIT :limit",
                                       values | {"limit": limit}).fetchall()  # fmt: skip
            return Live(
                count=len(begun),
                held=held,
                median_age=max(0.0, moment - statistics.median(begun)) if begun else None,
                rows=[self._live(row, moment, values["at"]) for row in found],
            )

    def totals(self, at: float | None = None) -> Totals:
        """Over all episodes of the run that are not evaluations."""
        if at is None:
            return totals(self._row(f"SELECT {SUMS} FROM task_tally WHERE eval = 0") or ())
        start = bucket(at)
        with self.snapshot():
            whole = self._row(f"SELECT {SUMS} FROM bucket WHERE eval = 0 AND start < ?", start) or ()
            summed = dict(zip(TALLY, whole, strict=True))
            ended = "finished >= ? AND finished <= ?"
            taken_back = "superseded >= ? AND superseded <= ? AND finished <= superseded"
            late = "finished >= ? AND finished <= ? AND superseded < finished"
            for condition, sign in ((ended, 1), (taken_back, -1), (late, -1)):
                for row in self._rows(f"SELECT {_COLUMNS} FROM episode WHERE eval = 0 AND {condition}", start, at):
                    for column, value in tally(Attempt(*row)):
                        summed[column] += sign * value
                    summed["retried"] += sign < 0
            return totals(summed)

    def rates(self, window: float = 3600.0, at: float | None = None, points: int = 120) -> list[Rate]:
        """Starts, ends and tokens over the last `window` seconds in equal slices; none are left out.
        At a past moment the newest slice lacks its last bucket, which would hold what came later."""
        with self.snapshot():
            moment = self.moment(at)
            end = moment if at is None else bucket(at)
            width = max(BUCKET_SECONDS, -(-window // (points * BUCKET_SECONDS)) * BUCKET_SECONDS)
            first = int((moment - window) // width + 1) * int(width)
            slices = {first + i * int(width): [0, 0, 0, 0] for i in range(int((moment - first) // width) + 1)}
            for query, place in (
                ("SELECT start, started, ended, solved FROM bucket WHERE eval = 0 AND start >= ? AND start < ?", 0),
                ("SELECT start, completion FROM pace WHERE start >= ? AND start < ?", 3),
            ):
                for start, *counts in self._rows(query, first, end):
                    slot = slices[int(start // width) * int(width)]
                    for i, count in enumerate(counts):
                        slot[place + i] += count
            return [Rate(float(start), width, *counts) for start, counts in sorted(slices.items())]

    # --- parts ---

    def _open(self, condition: str, at: float | None) -> tuple[str, dict[str, float]]:
        """A WHERE for episodes that were neither ended nor superseded at a moment, of the attempt of then."""
        run = self.run(at)
        values = {"at": END if at is None else at, "attempt": run.attempt if run else 0}
        if run and run.state in ENDED:
            return "WHERE 0", values
        if at is None:
            return f"WHERE finished IS NULL AND superseded IS NULL AND attempt >= :attempt AND {condition}", values
        then = condition.replace("started IS NOT NULL", "started <= :at").replace(
            "started IS NULL", "(started IS NULL OR started > :at)"
        )
        return (
            "INDEXED BY episode_span WHERE first <= :at AND (superseded IS NULL OR superseded > :at) "
            f"AND (finished IS NULL OR finished > :at) AND attempt >= :attempt AND {then}"
        ), values

    def _count(self, condition: str, at: float | None) -> int:
        where, values = self._open(condition, at)
        with self.snapshot() as connection:
            return int(connection.execute(f"SELECT count(*) FROM episode {where}", values).fetchone()[0])

    def _live(self, row: tuple[Any, ...], moment: float, at: float) -> LiveEpisode:
        e, told = row[0], dict(zip(_LIVE, row[1:], strict=True))
        phase = self._row(f"SELECT phase, t FROM phase {_OF} ORDER BY t DESC, phase DESC LIMIT 1", e, at)
        turn = self._row(f"SELECT turn, t, context FROM turn {_OF} ORDER BY turn DESC, t DESC, tie DESC LIMIT 1", e, at)
        said = self._row(f"SELECT coalesce(sum(completion), 0) FROM turn {_OF}", e, at)
        held = self._row(f"SELECT held FROM held {_OF} ORDER BY t DESC, held DESC LIMIT 1", e, at)
        return LiveEpisode(
            **told,
            age=max(0.0, moment - told["started"]),
            phase=phase[0] if phase else "",
            phase_since=phase[1] if phase else None,
            turn=turn[0] if turn else 0,
            turn_at=turn[1] if turn else None,
            context=turn[2] if turn else None,
            completion_tokens=said[0] if said else 0,
            held=bool(held and held[0]),
        )

    def _newest_steps(self, at: float | None) -> list[StepDone]:
        """The last steps that were current at a moment, newest first."""
        found = self._events(
            "SELECT body FROM step WHERE t <= ? AND (superseded IS NULL OR superseded > ?) "
            "ORDER BY step DESC, attempt DESC, t DESC, tie DESC LIMIT ?",
            END if at is None else at,
            END if at is None else at,
            STEPS_FOR_PACE,
        )
        return [event for event in found if isinstance(event, StepDone)]

    def _recent(self, at: float | None, moment: float, window: float) -> tuple[float, int, int, Totals]:
        """(seconds, ends, tokens, totals) of the buckets of the window; at a past moment of whole ones only."""
        first = self._row("SELECT first FROM extent")
        start = max(bucket(moment - window), bucket(first[0]) if first else 0)
        end = moment if at is None else bucket(at)
        ended, *sums = self._row(
            f"SELECT coalesce(sum(ended), 0), {SUMS} FROM bucket WHERE eval = 0 AND start >= ? AND start < ?",
            start,
            end,
        ) or (0,)
        tokens = self._row("SELECT coalesce(sum(completion), 0) FROM pace WHERE start >= ? AND start < ?", start, end)
        return max(end - start, 1.0), ended, tokens[0] if tokens else 0, totals([max(0, value) for value in sums])


_COLUMNS = ", ".join(COLUMNS)
_LIVE = ("id", "n", "task", "group", "step", "policy", "worker", "trial", "started")
_OF = "WHERE e = ? AND t <= ?"
_HELD = "SELECT held FROM held WHERE held.e = episode.e AND held.t <= :at ORDER BY t DESC, held DESC LIMIT 1"


def _pace(steps: list[StepDone]) -> float | None:
    """Seconds per step: the median distance of the newest steps of one attempt, else what the only one took."""
    distances = [
        later.t - earlier.t
        for later, earlier in itertools.pairwise(steps)
        if later.attempt == earlier.attempt and later.step == earlier.step + 1 and later.t > earlier.t
    ]
    if distances:
        return statistics.median(distances)
    return steps[0].seconds or None if steps else None
