"""One process of the plan and its life: waiting, starting, ready or running, backoff, stopping, exited, failed.

Guarantees: it starts only when what it depends on stands; the next life begins only when nothing of the last one is
left. Its end is told with code or signal and the last lines of its log. Failures in a row without progress use up the
budget; a death by signal of a process that had been ready, and any life that made progress, do not.

On failure: the budget's end is state `failed`, and `final` is resolved; what that means for the run is not decided
here.
"""

import asyncio
import contextlib
import signal
import time
import traceback
from pathlib import Path
from typing import Protocol

from harbortui.runs.events import ProcessChanged, ProcessState
from harbortui.supervisor.kept import Ending, Kept
from harbortui.supervisor.ledger import Entry
from harbortui.supervisor.logtail import tail
from harbortui.supervisor.plan import Probe, ProcessSpec
from harbortui.supervisor.probes import Prober

TAIL = 50
STEADY = 10.0
UNANSWERED = 5.0
SETTLED: frozenset[str] = frozenset({"exited", "failed"})


class Surroundings(Protocol):
    """What a process needs of its supervisor."""

    def tell(self, event: ProcessChanged) -> bool: ...
    def remember(self, process: "Process") -> None: ...
    def environment(self, spec: ProcessSpec) -> dict[str, str]: ...
    def log(self, name: str) -> Path: ...
    def made_progress(self, name: str, pid: int) -> bool: ...
    def may_end(self, spec: ProcessSpec) -> bool: ...
    async def spawn(self, spec: ProcessSpec) -> Kept: ...


class Process:
    def __init__(self, spec: ProcessSpec, around: Surroundings, others: dict[str, "Process"]) -> None:
        self.spec, self.around, self.others = spec, around, others
        self.state: ProcessState = "waiting"
        self.last_end = ""
        self.reason = ""
        self.since = time.time()
        self.restarts = self.failures = self.quick = self.log_from = 0
        self.was_ready = False
        self.kept: Kept | None = None
        self.changed = asyncio.Condition()
        self.final: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._wanted = True
        self._again = ""
        self._now = False
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self.kept.pid if self.kept and not self.kept.exited.done() else 0

    @property
    def up(self) -> bool:
        """Ready, or running where readiness cannot be told."""
        return self.state in ("ready", "running")

    def entry(self) -> Entry:
        kept = self.kept
        return Entry(
            keeper=kept.keeper if kept else 0,
            keeper_start=kept.keeper_start if kept else 0,
            pid=kept.pid if kept else 0,
            start=kept.start if kept else 0,
            state=self.state,
            reason=self.reason,
            again=self._again,
            restarts=self.restarts,
            failures=self.failures,
            since=self.since,
            was_ready=self.was_ready,
            ports=self.spec.ports,
            log_from=self.log_from,
        )

    def begin(self, adopted: Kept | None = None, entry: Entry | None = None) -> None:
        if entry:
            self.restarts, self.failures, self.was_ready = entry.restarts, entry.failures, entry.was_ready
            self.log_from, self.reason, self._again = entry.log_from, entry.reason, entry.again
        if entry and entry.state in SETTLED and adopted is None:
            self.state, self.since = ("exited" if entry.state == "exited" else "failed"), entry.since
            self.final.set_result(entry.state == "exited")
            return
        if adopted and entry and entry.state in ("ready", "running"):
            self.state = "ready" if entry.state == "ready" else "running"
        self._go(adopted, entry.state if entry else "")

    def _go(self, adopted: Kept | None = None, was: str = "") -> None:
        self._task = asyncio.create_task(self._live(adopted, was))
        self._task.add_done_callback(self._broken)

    def _broken(self, task: asyncio.Task[None]) -> None:
        """A defect of ours must not become a process that nobody minds."""
        if not task.cancelled() and (error := task.exception()):
            traceback.print_exception(error)
            self.state, self.reason = "failed", f"the supervisor went wrong over it: {error!r}"
            if not self.final.done():
                self.final.set_result(False)

    async def _move(self, state: ProcessState, reason: str = "", ending: Ending | None = None, last: str = "") -> None:
        self.state, self.reason, self.since = state, reason, time.time()
        code = ending.code if ending else None
        self.around.tell(
            ProcessChanged(
                process=self.spec.name,
                role=self.spec.role,
                state=state,
                reason=reason,
                restarts=self.restarts,
                pid=self.kept.pid if self.kept else 0,
                code=code if code is not None and code >= 0 else None,
                signal=-code if code is not None and code < 0 else None,
                died=ending.at if ending else None,
                tail=last.splitlines() if last else [],
            )
        )
        # told before it is remembered: killed in between, the next supervisor tells it twice, not never
        self.around.remember(self)
        async with self.changed:
            self.changed.notify_all()

    async def wait_for(self, until: str) -> bool:
        """Wait until this process is started, ready or exited well; False when that can no longer be."""
        while True:
            if until == "exited" and self.state == "exited":
                return True
            if self.up or (until == "started" and self.state == "starting" and self.kept):
                if until != "exited":
                    return True
            elif self.state in SETTLED:
                return until != "exited" and self.state == "exited"
            async with self.changed:
                await self.changed.wait()

    async def _live(self, adopted: Kept | None, was: str) -> None:
        if adopted is None:
            await self._await_dependencies()
        while True:
            if not self._wanted:
                return await self._settle("exited", "stopped before it started")
            ending, why = await self._one_life(adopted, was)
            adopted, was = None, ""
            if await self._ended(ending, why):
                return None

    async def _await_dependencies(self) -> None:
        for dependency in self.spec.depends_on:
            other = self.others[dependency.process]
            if not other.up and self._wanted:
                verb = {"ready": "be ready", "started": "start", "exited": "end well"}[dependency.until]
                await self._move("waiting", f"for {dependency.process} to {verb}")
            while self._wanted and not await other.wait_for(dependency.until):
                await asyncio.sleep(0.05)

    async def _one_life(self, kept: Kept | None, was: str) -> tuple[Ending, str]:
        """From the start (or adoption) to the death of the child; the reason when we ended it ourselves."""
        if kept is None:
            self.was_ready, self._again = False, ""
            await self._move("starting")
            with contextlib.suppress(OSError):
                self.log_from = 0
                self.log_from = self.around.log(self.spec.name).stat().st_size
            try:
                kept = await self.around.spawn(self.spec)
            except OSError as error:
                return Ending(None, time.time()), f"could not be started: {error.strerror}"
        self.kept = kept
        await kept.started
        if not self._wanted:
            kept.stop(getattr(signal, self.spec.stop.signal), self.spec.stop.deadline)
            return await kept.exited, ""
        watch = asyncio.create_task(self._watch(kept, was))
        ending = await kept.exited
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
        return ending, self._again

    async def _watch(self, kept: Kept, was: str) -> None:
        """Readiness, then liveness; either failing ends this life."""
        if was in ("ready", "running"):
            await self._move("ready" if was == "ready" else "running", "adopted")
        elif self.spec.ready:
            await self._move("starting")
            if why := await self._prober(self.spec.ready).until_ready():
                self._end_life(kept, why)
                return
            self.was_ready = True
            await self._move("ready")
        else:
            await self._move("running")
        if self.spec.live:
            self._end_life(kept, await self._prober(self.spec.live).until_dead())

    def _end_life(self, kept: Kept, why: str) -> None:
        """Remembered before it is done, so that a supervisor that takes over knows why it ended."""
        self._again = why
        self.around.remember(self)
        kept.stop(getattr(signal, self.spec.stop.signal), self.spec.stop.deadline)

    def _prober(self, probe: Probe) -> Prober:
        env = self.around.environment(self.spec)
        return Prober(probe, self.around.log(self.spec.name), self.log_from, env, self.spec.cwd)

    async def _ended(self, ending: Ending, why: str) -> bool:
        """Tell the death, wait for the last descendant, and decide: True when it is final."""
        told = self.last_end = describe(ending, why)
        kept, pid = self.kept, self.kept.pid if self.kept else 0
        policy = self.spec.restart
        well = ending.code == 0 and not why and self.around.may_end(self.spec)
        last = "" if well or not self._wanted or why == "restart" else self._last_words()
        if ending.code == 0 and self._wanted and not (well or why):
            told = "exited with 0 though the run goes on"
        failed = not (well or why == "restart")
        restart = self._wanted and (
            why == "restart" or policy.policy == "always" or (policy.policy == "on-failure" and failed)
        )
        if not restart:
            end: ProcessState = "exited" if well or not self._wanted else "failed"
            if kept and not kept.gone.done():
                await self._move("stopping", told, ending, last)
                await kept.gone
                await self._settle(end, told)
            else:
                await self._settle(end, told, ending, last)
            return True
        self._count(ending, failed and not why, failed, pid)
        if self.failures >= policy.budget:
            await self._move("stopping", told, ending, last)
            if kept:
                await kept.gone
            await self._settle("failed", f"{self.failures} failures in a row without progress, the last: {told}")
            return True
        self.restarts += 1
        often = max(self.failures, self.quick) - 1
        pause = 0.0 if why == "restart" else min(policy.backoff * 2 ** max(0, often), policy.backoff_max)
        await self._move("backoff", f"{told}; starts again in {pause:g} s", ending, last)
        if kept:
            await kept.gone
        self.kept = None
        self._now = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause), self.changed:
                await self.changed.wait_for(lambda: self._now or not self._wanted)
        return False

    def _count(self, ending: Ending, by_itself: bool, failed: bool, pid: int) -> None:
        """Failures in a row; and quick deaths in a row, which make the pauses grow even where they are forgiven."""
        lived = time.time() - self.since
        if self.around.made_progress(self.spec.name, pid):
            self.failures = self.quick = 0
        forgiven = by_itself and ending.code is not None and ending.code < 0 and (self.was_ready or lived > STEADY)
        self.failures += failed and not forgiven
        self.quick = self.quick + 1 if failed and lived < STEADY else 0

    def _last_words(self) -> str:
        return tail(self.around.log(self.spec.name), TAIL, since=self.log_from)

    async def _settle(self, state: ProcessState, reason: str, ending: Ending | None = None, last: str = "") -> None:
        await self._move(state, reason, ending, last)
        if not self.final.done():
            self.final.set_result(state == "exited")

    async def stop(self, deadline: float | None = None) -> None:
        """End it for good and wait until nothing of it is left. A keeper that does not answer is killed."""
        self._wanted = False
        deadline = self.spec.stop.deadline if deadline is None else deadline
        if self.state in SETTLED:
            return
        kept = self.kept
        if kept and not kept.exited.done():
            if self.state != "stopping":
                await self._move("stopping")
            kept.stop(getattr(signal, self.spec.stop.signal), deadline)
        elif self.state == "waiting" and self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            if not self.final.done():
                await self._settle("exited", "was not running")
            return
        async with self.changed:
            self.changed.notify_all()
        try:
            await asyncio.wait_for(asyncio.shield(self.final), deadline + UNANSWERED)
        except TimeoutError:
            if self.kept:
                self.kept.kill_keeper()
            await asyncio.shield(self.final)

    async def restart(self) -> bool:
        """End this life and begin another, at once; False while it is ending or waits for another process."""
        if self.state in SETTLED:
            self.final = asyncio.get_running_loop().create_future()
            self.failures = self.quick = 0
            self.kept, self._wanted, self.state = None, True, "waiting"
            self._go()
        elif self.state == "backoff":
            self._now = True
            async with self.changed:
                self.changed.notify_all()
        elif self.kept and not self.kept.exited.done() and self.state != "stopping":
            self._end_life(self.kept, "restart")
        else:
            return False
        return True


def describe(ending: Ending, why: str = "") -> str:
    if ending.code is None:
        return why or "ended while nobody could see how"
    if ending.code < 0:
        try:
            name = signal.Signals(-ending.code).name
        except ValueError:
            name = f"signal {-ending.code}"
        text = f"killed by {name}"
        text += ", as its keeper died" if ending.lost else ""
    else:
        text = f"exited with {ending.code}"
    return f"{why} ({text})" if why and why != "restart" else text
