"""What the supervisor knows of its run from elsewhere: the read model, the journals' growth, /proc, the disk.

Guarantees: looked at every few seconds for the watchdog, and on demand while a verb waits for something to be true.
An answer from the read model is never newer than the journals: what is seen there has happened.

On failure: without an index (not yet made, being rebuilt, broken) nothing is known, nothing is claimed, and after a
while an alarm says so; supervision itself never depends on it.
"""

import asyncio
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from harbortui.runs.events import CheckpointChanged
from harbortui.runs.index.place import place_of
from harbortui.runs.queries import IndexUnusable, Queries
from harbortui.runs.queries.run import ProcessRow
from harbortui.runs.reading import lag
from harbortui.supervisor import secrets
from harbortui.supervisor.alarms import Alarm
from harbortui.supervisor.sampler import Sampler, memory_percent
from harbortui.supervisor.watchdog import Facts, Late, Seen, look

if TYPE_CHECKING:
    from harbortui.supervisor.supervisor import Supervisor

TICK = 1.0
FEW = 5
SETTLED = 30.0
OLDEST = 50
JUMP = 5.0
MEDIANS = 30.0
LATELY = 1800.0


class Watching:
    def __init__(self, supervisor: "Supervisor") -> None:
        self.supervisor = supervisor
        self.sampler = Sampler(supervisor.run.path)
        self._queries: Queries | None = None
        self._grown: dict[str, tuple[int, float]] = {}
        self._offset = time.time() - time.monotonic()
        self._jump: tuple[float, float] | None = None
        self._trusted = 0.0
        self._missing = 0
        self._index_at, self._index_moved = -1, time.monotonic()
        self._next_sample = 0.0
        self._next_medians = 0.0
        self._medians: dict[tuple[str, str], float] = {}

    async def run(self) -> None:
        """Look around once a second; the expensive half every few seconds."""
        while True:
            try:
                self._tick()
            except Exception:  # a watchdog that dies of one bad look is worse than a line in the log
                traceback.print_exc(file=sys.stderr)
            await asyncio.sleep(TICK)

    def _tick(self) -> None:
        supervisor = self.supervisor
        if supervisor.journal.pending:
            supervisor.journal.flush()
        if supervisor.unsaved:
            supervisor.remember()
        self._watch_folders()
        now = time.monotonic()
        self._watch_clock(now)
        if now < self._next_sample:
            return
        self._next_sample = now + supervisor.plan.watch.sample
        roots = {name: p.kept.keeper for name, p in supervisor.processes.items() if p.kept and not p.kept.gone.done()}
        for sample in self.sampler.sample(roots):
            supervisor.tell(sample)
        told = supervisor.alarms.settle(self.look(now))
        for event in told:
            supervisor.tell(event)
        if told:
            supervisor.remember()

    def _watch_folders(self) -> None:
        """The folder of sockets may go with a login, and is made again; a run directory that has gone is the end."""
        supervisor = self.supervisor
        if not (supervisor.run.runtime / "secrets.json").exists():
            secrets.store(supervisor.run, supervisor.secrets)
        self._missing = 0 if supervisor.run.path.is_dir() else self._missing + 1
        if self._missing == 3:
            supervisor.ending.begin("failed", "the run directory is gone", now=True)

    def _watch_index(self, queries: Queries) -> tuple[int, float]:
        """Bytes that the index is behind, and for how long it has not come forward."""
        now, behind = time.monotonic(), lag(self.supervisor.run, queries)
        at = sum(queries.offsets().values())
        if at != self._index_at or behind == 0:
            self._index_at, self._index_moved = at, now
        return behind, now - self._index_moved

    def _watch_clock(self, now: float) -> None:
        offset = time.time() - now
        if abs(offset - self._offset) >= JUMP:
            self._jump = (offset - self._offset, now)
            self._trusted = time.time()
        self._offset = offset
        if self._jump and now - self._jump[1] > 60:
            self._jump = None

    def look(self, now: float) -> list[Alarm]:
        supervisor = self.supervisor
        rows: list[ProcessRow] = []
        told = {row.name: row for row in self._ask(lambda queries: queries.processes(), rows)}
        nothing: tuple[int | None, float] = (None, now - self._index_moved)
        behind, stuck = self._ask(self._watch_index, nothing)
        if now >= self._next_medians:
            self._next_medians = now + MEDIANS
            self._medians = self._ask(self._usual, {})
        wall = time.time()
        seen = []
        for name, process in supervisor.processes.items():
            row = told.get(name)
            current = row if row and row.pid == process.pid and process.up and row.doing_since else None
            settled = process.up and wall - process.since > SETTLED
            role = process.spec.role
            seen.append(
                Seen(
                    name=name,
                    role=role,
                    state=process.state,
                    reason=process.last_end or process.reason,
                    failures=0 if settled else max(process.failures, process.quick),
                    quiet=self._quiet(name, process.pid, now) if process.up else None,
                    doing=current.doing if current else "",
                    on=current.on if current else "",
                    lasting=self._since(current.doing_since, wall) if current else None,
                    median=self._medians.get((role, current.doing)) if current else None,
                )
            )
        nobody: tuple[list[Late], dict[str, float]] = ([], {})
        late, usual = self._ask(self._late, nobody)
        facts = Facts(
            run=supervisor.run.name,
            late=late,
            usual=usual,
            state=supervisor.state,
            processes=seen,
            disk_free=self.sampler.disk_free(),
            disk_slope=self.sampler.disk_slope(),
            memory_percent=memory_percent(),
            index_behind=behind,
            index_stuck=stuck,
            journal_pending=supervisor.journal.pending,
            clock_jump=self._jump[0] if self._jump else 0.0,
        )
        return look(facts, supervisor.plan.watch)

    def _quiet(self, name: str, pid: int, now: float) -> float | None:
        """How long this life's journal has not grown; None for a process that keeps none."""
        supervisor = self.supervisor
        try:
            size = supervisor.run.journal(name, pid, supervisor.ledger.attempt).stat().st_size
        except OSError:
            return None
        before, since = self._grown.get(name, (-1, now))
        if size != before:
            self._grown[name] = (size, now)
            return 0.0
        return now - since

    def _usual(self, queries: Queries) -> dict[tuple[str, str], float]:
        """The median length of each activity of each role, of late."""
        roles = {name: process.spec.role for name, process in self.supervisor.processes.items()}
        lengths: dict[tuple[str, str], list[float]] = {}
        now = time.time()
        for span in queries.timeline(now - LATELY, now):
            if span.ended is not None and span.process in roles:
                lengths.setdefault((roles[span.process], span.doing), []).append(span.ended - span.began)
        return {key: statistics.median(found) for key, found in lengths.items() if len(found) >= FEW}

    def _late(self, queries: Queries) -> tuple[list[Late], dict[str, float]]:
        """How long the oldest live episodes have been in their phase, and how long that usually takes."""
        live = queries.live_episodes(limit=OLDEST)
        usual = {phase: found.seconds for phase, found in queries.phase_medians().items() if found.episodes >= FEW}
        now = time.time()
        ages = [(e, self._since(e.phase_since, now)) for e in live.rows if not e.held]
        return [Late(e.id, e.phase, age) for e, age in ages if age is not None], usual

    def _since(self, moment: float | None, now: float) -> float | None:
        """How long ago that was; None when the clock has jumped in between."""
        return None if moment is None or moment < self._trusted else max(0.0, now - moment)

    def _ask[T](self, question: Callable[[Queries], T], otherwise: T) -> T:
        try:
            self._queries = self._queries or Queries(place_of(self.supervisor.run).index, patience=0.0)
            return question(self._queries)
        except (IndexUnusable, OSError):
            return otherwise

    # what verbs wait for

    def acknowledged(self) -> dict[str, int]:
        names = [process.spec.name for process in self.supervisor.steered()]
        return self._ask(lambda queries: {name: queries.acknowledged(name) for name in names}, {})

    def running(self) -> tuple[int, int] | None:
        """Episodes that run, and those of them that are held; None when that cannot be known."""
        return self._ask(lambda queries: queries.running(), None)

    def still_running(self, held_too: bool = True) -> str:
        """In words, the episodes that still run (also those that are held, or not); '' when there are none."""
        known = self.running()
        if known is None:
            return "the index cannot be read, so nobody knows what still runs"
        count = known[0] if held_too else known[0] - known[1]
        return "" if count <= 0 else "1 episode still runs" if count == 1 else f"{count} episodes still run"

    def knows_episode(self, name: str) -> bool | None:
        """None when that cannot be known."""
        return self._ask(lambda queries: bool(queries.episode(name)), None)

    def checkpoint(self, request: str) -> CheckpointChanged | None:
        """How the checkpoint that was asked for by this request has ended, if it has."""
        return self._ask(lambda queries: queries.checkpoint_ended(request), None)
