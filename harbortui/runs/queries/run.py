"""What is asked about the run and its processes.

Guarantees: a state is the newest one told, of the newest attempt; `lost` is never answered, as only the holder of
the supervisor's lock can know it. What is not known is None or empty, never 0.
"""

import msgspec

from harbortui.runs.events import ALIVE, ENDED, Activity, JournalOpened, ProcessChanged, Resources, RunChanged
from harbortui.runs.queries.base import Reader


class RunRow(msgspec.Struct, frozen=True):
    name: str
    backend: str
    demo: bool
    state: str
    reason: str
    level: str
    since: float
    attempt: int
    started: float
    ended: float | None


class ProcessRow(msgspec.Struct, frozen=True):
    """A process as last told; `doing`, and `on` whom it waits, only while it lives. Resources are of `sampled`."""

    name: str
    role: str
    state: str
    pid: int
    since: float
    restarts: int
    reason: str
    code: int | None
    signal: int | None
    attempt: int
    cpu: float | None = None
    rss: int | None = None
    gpu_memory: int | None = None
    gpu_use: float | None = None
    sampled: float | None = None
    doing: str = ""
    on: str = ""
    doing_since: float | None = None


class RunQueries(Reader):
    def run(self, at: float | None = None) -> RunRow | None:
        told = sorted(self._facts(RunChanged, at), key=lambda event: event.attempt)
        if not told:
            return None
        now = since = told[-1]
        for event in reversed(told):
            if (event.state, event.level, event.attempt) != (now.state, now.level, now.attempt):
                break
            since = event
        return RunRow(
            name=next((event.name for event in reversed(told) if event.name), ""),
            backend=next((event.backend for event in reversed(told) if event.backend), ""),
            demo=any(event.demo for event in told),
            state=now.state,
            reason=now.reason,
            level=now.level,
            since=since.t,
            attempt=now.attempt,
            started=told[0].t,
            ended=now.t if now.state in ENDED else None,
        )

    def processes(self, at: float | None = None) -> list[ProcessRow]:
        with self.snapshot():
            return [row for name in self._keys("process") if (row := self._process(name, at))]

    def _process(self, name: str, at: float | None) -> ProcessRow | None:
        told = self._last(ProcessChanged, name, at)
        if told is None:
            return None
        alive = told.state in ALIVE
        sample = self._last(Resources, name, at) if alive else None
        activity = self._last(Activity, name, at) if alive else None
        return ProcessRow(
            name=name,
            role=told.role,
            state=told.state,
            pid=told.pid,
            since=told.t,
            restarts=told.restarts,
            reason=told.reason,
            code=told.code,
            signal=told.signal,
            attempt=told.attempt,
            cpu=sample.cpu if sample else None,
            rss=sample.rss if sample else None,
            gpu_memory=sample.gpu_memory if sample else None,
            gpu_use=sample.gpu_use if sample else None,
            sampled=sample.t if sample else None,
            doing=activity.doing if activity else "",
            on=activity.on if activity else "",
            doing_since=activity.t if activity else None,
        )

    def process_events(self, process: str, limit: int = 50, at: float | None = None) -> list[ProcessChanged]:
        """What became of a process, newest first, with the last lines of those that died."""
        return self._facts(ProcessChanged, at, process)[: -limit - 1 : -1]

    def writers(self) -> list[JournalOpened]:
        """Who wrote journals: process, role, host, boot and pid."""
        return self._facts(JournalOpened)

    def acknowledged(self, process: str, since: float = 0.0) -> int:
        """The highest sequence that a process has taken note of (at or after `since`); 0 for none."""
        row = self._row("SELECT max(sequence) FROM acknowledged WHERE process = ? AND t >= ?", process, since)
        return int(row[0] or 0) if row else 0
