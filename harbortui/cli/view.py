"""A run as every face shows it: the read model, and who holds the supervisor's lock.

Guarantees: a dead run and a live one are looked at by the same code. `state` is what the journals told last, or `lost`
when they told no end, nobody supervises the run and nothing that its ledger names is alive. A run whose supervisor
died while its processes live is shown as it is, with no supervisor and a hint. Nothing is written to the run.

On failure: without an index yet, a view is empty but for what the lock and the ledger tell.
"""

import socket
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec

from harbortui.cli import text
from harbortui.cli.stream import Stream
from harbortui.runs.events import ALIVE, ENDED, Event
from harbortui.runs.layout import Run
from harbortui.runs.queries import IndexUnusable, Queries
from harbortui.runs.queries.metrics import StepRow
from harbortui.runs.reading import open_queries
from harbortui.supervisor import ledger as ledgers
from harbortui.supervisor import plan as plans
from harbortui.supervisor.lock import holder, supervised
from harbortui.supervisor.logtail import clean

SHOWN_STEPS = 40
DONE = ("exited", "failed")


@dataclass
class View:
    """One look at a run."""

    run: Run
    name: str
    state: str = "preparing"
    reason: str = ""
    level: str = ""
    backend: str = ""
    demo: bool = False
    attempt: int = 0
    started: float = 0.0
    ended: float | None = None
    step: int | None = None
    total: int | None = None
    policy: int | None = None
    running: int = 0
    held: int = 0
    queued: int = 0
    finished: int = 0
    eta: float | None = None
    last: StepRow | None = None
    rewards: list[float] = field(default_factory=list)
    processes: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    supervisor: dict[str, Any] | None = None
    hint: str = ""
    bell: bool = False

    @property
    def over(self) -> bool:
        """Nothing more will happen: it has ended, and its supervisor is gone."""
        return self.state in ENDED and self.supervisor is None

    @property
    def lasted(self) -> float:
        return max(0.0, (self.ended or time.time()) - self.started) if self.started else 0.0

    def steps(self) -> str:
        if self.step is None:
            return ""
        return f"{self.step}/{self.total}" if self.total else str(self.step)

    def progress(self) -> str:
        return f"step {self.steps()}" if self.step is not None else "no step yet"

    def episodes(self) -> str:
        parts = [f"{self.running} running"] + ([f"{self.held} held"] if self.held else [])
        last = "episodes when last heard of: " if self.state == "lost" else "episodes "
        return last + ", ".join([*parts, f"{self.queued} queued", f"{self.finished} done"])

    def numbers(self) -> str:
        return "  ".join(self.parts())

    def parts(self) -> list[str]:
        """The last step's reward, honest reward, loss; what is unknown is left out."""
        last = self.last
        if last is None:
            return []
        out = sum(last.left_out.values())
        parts = [f"reward {text.number(last.reward)}"] if last.reward is not None else []
        if last.honest_reward is not None:
            parts.append(f"honest {text.number(last.honest_reward)}" + (f" ({out} left out)" if out else ""))
        parts += [f"loss {text.number(last.loss, '.4g')}"] if last.loss is not None else []
        return parts + ([f"solved {last.solve_rate:.0%}"] if last.solve_rate is not None else [])

    def json(self) -> dict[str, Any]:
        last = self.last
        return {
            "run": self.name, "path": str(self.run.path), "state": self.state, "reason": clean(self.reason),
            "level": self.level, "backend": self.backend, "demo": self.demo, "attempt": self.attempt,
            "started": self.started or None, "ended": self.ended, "step": self.step, "total": self.total,
            "policy": self.policy, "reward": last.reward if last else None,
            "honest_reward": last.honest_reward if last else None, "loss": last.loss if last else None,
            "solve_rate": last.solve_rate if last else None, "eta_seconds": self.eta,
            "episodes": {"running": self.running, "held": self.held, "queued": self.queued, "done": self.finished},
            "supervisor": self.supervisor, "processes": self.processes, "alarms": self.alarms,
            "hint": self.hint or None,
        }  # fmt: skip


def look(run: Run) -> View:
    """One look, for a command that ends after it."""
    with Watch(run, steps=1, fresh=True) as watch:
        return watch.view()


def metrics_of(run: Run, last: int | None = None) -> list[dict[str, Any]]:
    """What each step told, oldest first; steps that a newer attempt replaced are left out."""
    with open_queries(run) as queries:
        rows = queries.steps(limit=last or 1 << 40)
    return [_step(row) for row in rows]


def _step(row: StepRow) -> dict[str, Any]:
    told = msgspec.to_builtins(row)
    rest = {key: value for key, value in told.items() if key not in ("step", "attempt", "t", "superseded", "counted")}
    return {"step": row.step, "attempt": row.attempt, "time": row.t, **rest}


class Watch:
    """Looking again and again at one run."""

    def __init__(self, run: Run, steps: int = SHOWN_STEPS, fresh: bool = False) -> None:
        """`fresh`: the run was launched just now, so that all it told is news."""
        self.run, self._steps = run, steps
        self._queries: Queries | None = None
        self._plan: plans.Plan | None = None
        self._stream = Stream(run)
        if not fresh:
            self._stream.skip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._queries:
            self._queries.close()

    def look(self) -> tuple[View, list[Event]]:
        """What the run is now, and what was told since the last look."""
        view = self.view()
        return view, [event for _, event in self._stream.fresh() if isinstance(event, Event)]

    def view(self) -> View:
        run = self.run
        holds = supervised(run)
        view = View(run, run.name)
        if holds:
            view.supervisor = _supervisor(run)
        try:
            self._fill(view, self._model(holds))
        except IndexUnusable as error:
            view.hint = str(error)
        self._planned(view)
        if not holds:
            _unsupervised(view)
        return view

    def _model(self, holds: bool) -> Queries:
        """The index; brought up to date by us where no indexer is at work, as in a run that has ended."""
        if self._queries and not holds:
            self._queries.close()
            self._queries = None
        if not self._queries:
            self._queries = open_queries(self.run)
        return self._queries

    def _fill(self, view: View, queries: Queries) -> None:
        with queries.snapshot():
            found = queries.mission()
            rows = queries.steps(limit=self._steps)
            processes = queries.processes()
            alarms = queries.alarms()
        if told := found.run:
            view.state, view.reason, view.level, view.backend = told.state, told.reason, told.level, told.backend
            view.demo, view.attempt, view.started, view.ended = told.demo, told.attempt, told.started, told.ended
        view.step, view.total, view.policy, view.eta = found.step, found.total, found.policy, found.eta_seconds
        view.running, view.held, view.queued, view.finished = found.live, found.held, found.queued, found.totals.n
        view.last = rows[-1] if rows else None
        view.rewards = [row.reward for row in rows if row.reward is not None]
        view.alarms = [
            {
                "key": alarm.key, "severity": alarm.severity, "text": clean(alarm.text), "remedy": clean(alarm.remedy),
                "process": alarm.process, "since": alarm.raised,
            }
            for alarm in alarms
        ]  # fmt: skip
        view.processes = [
            {
                "name": row.name, "role": row.role, "pid": row.pid or None, "state": row.state,
                "restarts": row.restarts, "since": row.since, "reason": clean(row.reason), "code": row.code,
                "signal": row.signal, "attempt": row.attempt, "doing": clean(row.doing), "on": clean(row.on),
                "cpu": row.cpu, "rss": row.rss,
            }
            for row in processes
        ]  # fmt: skip

    def _planned(self, view: View) -> None:
        """What the plan knows: the order of the processes, and what the run is before it has said so."""
        try:
            self._plan = self._plan or msgspec.json.decode(self.run.plan.read_bytes(), type=plans.Plan)
        except (OSError, msgspec.DecodeError):
            return
        order = [spec.name for spec in self._plan.processes]
        view.processes.sort(key=lambda row: order.index(row["name"]) if row["name"] in order else len(order))
        view.bell = self._plan.notify.bell
        view.backend, view.demo = view.backend or self._plan.backend, view.demo or self._plan.demo


def _supervisor(run: Run) -> dict[str, Any]:
    try:
        host = run.pid.read_text().split()[1]
    except (OSError, IndexError):
        host = ""
    return {"pid": holder(run) or None, "host": host}


def _unsupervised(view: View) -> None:
    """Nobody holds the lock: it has ended, or is lost, or goes on under its keepers."""
    run = view.run
    ledger = ledgers.read(run)
    if ledger.state in ENDED and view.state not in ENDED:
        view.state, view.reason = ledger.state, ledger.reason
    if view.state in ENDED:
        return
    if ledger.owner and ledger.host != socket.gethostname():
        view.hint = f"it was launched on {ledger.host}; whether it lives can be seen there"
        return
    living, lost = ledger.living(), ledger.lost()
    for row in view.processes:
        if row["name"] not in living and (row["state"] in ALIVE or (lost and row["state"] not in DONE)):
            row["state"] = "lost"
    if lost:
        view.state = "lost"
        view.reason = "no supervisor, and its processes are gone" if ledger.owner else "it was never launched"
        view.hint = f"`harbortui run --resume {run.name}` goes on from its newest whole checkpoint"
    else:
        view.hint = (
            f"its supervisor died, {len(living)} processes go on under their keepers; any verb starts a new one, "
            f"so does `harbortui supervise {run.name}`"
        )
