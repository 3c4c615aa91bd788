"""How a run ends: drained if asked, a last checkpoint, everything stopped in order, nothing left, and only then said.

Guarantees: dependents stop before what they depend on, the auxiliary processes last. The end is told when no keeper of
the run lives and nothing carries its mark. Asked again, the new way of ending replaces the old one. The way is in the
ledger, so that a supervisor that takes over carries it out.

On failure: an ending that goes wrong is tried once more without ceremony, and the run is `failed` with what went wrong.
"""

import asyncio
import time
import traceback
from typing import TYPE_CHECKING, Any

from harbortui.runs.events import AlarmChanged, OperatorAction, RunState
from harbortui.supervisor import procfs
from harbortui.supervisor.ledger import Way

PATIENCE = 5.0

if TYPE_CHECKING:
    from harbortui.supervisor.supervisor import Supervisor


class Ending:
    def __init__(self, supervisor: "Supervisor") -> None:
        self.supervisor = supervisor
        self.told = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._went_wrong = ""

    @property
    def under_way(self) -> bool:
        return self._task is not None

    def begin(
        self,
        state: RunState,
        reason: str,
        *,
        checkpoint: bool = True,
        drain: bool = False,
        now: bool = False,
        asked: OperatorAction | None = None,
    ) -> None:
        """Written down before this returns. A failure stays a failure, whoever asks for another end afterwards."""
        supervisor = self.supervisor
        if self.told.is_set():
            return
        asked = asked or OperatorAction(verb="", state="accepted")
        way = Way(state, reason, checkpoint and not now, drain, now, asked.verb, asked.request, asked.user)
        before = supervisor.ledger.way
        if before and before.state == "failed":
            way.state, way.reason = before.state, before.reason
        if before and before.request:
            by = asked.verb or reason
            supervisor.came_true(_asked(before), f"overtaken by {by}", "failed")
        if self._task:
            self._task.cancel()
        supervisor.pausing.overtake()
        self._start(way)

    def carry_on(self, way: Way) -> None:
        """A supervisor before this one did not live to see the end."""
        self._start(way)

    def _start(self, way: Way) -> None:
        self.supervisor.ledger.way = way
        self.supervisor.move("stopping", way.reason)
        self._task = asyncio.ensure_future(self._run(way))
        self._task.add_done_callback(self._look_at)

    def _look_at(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task is not self._task or not (error := task.exception()):
            return
        traceback.print_exception(error)
        if self._went_wrong:
            self.told.set()
            return
        self._went_wrong = f"ending the run went wrong: {type(error).__name__}: {error}"
        self.begin("failed", self._went_wrong, now=True)

    async def _run(self, way: Way) -> None:
        supervisor, reason = self.supervisor, way.reason
        if way.drain:
            await self._drain()
        if way.checkpoint:
            reason += await self._last_checkpoint(way.request or f"end-{time.time():.3f}")
        await self._stop_all(1.0 if way.now else None)
        await self._sweep()
        state: Any = way.state
        supervisor.move(state, reason)
        supervisor.came_true(_asked(way), reason)
        self.told.set()

    async def _drain(self) -> None:
        try:
            sequence = self.supervisor.wish(pause="dispatch")
        except OSError:
            return
        await self.supervisor.obeyed(sequence)
        await self.supervisor.until(self.supervisor.watching.still_running)

    async def _last_checkpoint(self, request: str) -> str:
        if not self.supervisor.checkpointer():
            return ""
        patience = self.supervisor.plan.watch.checkpoint_deadline
        try:
            async with asyncio.timeout(patience):
                whole, answer = await self.supervisor.checkpoint(request)
        except (TimeoutError, OSError) as error:
            whole, answer = False, str(error) or f"not whole after {patience:g} s"
        return f"; {answer}" if whole else f"; no checkpoint at the end: {answer}"

    async def _stop_all(self, deadline: float | None) -> None:
        left = list(self.supervisor.processes.values())
        while left:
            needed = {d.process for p in left for d in p.spec.depends_on}
            tops = [p for p in left if p.spec.name not in needed and not p.spec.auxiliary]
            tops = tops or [p for p in left if not p.spec.auxiliary] or left
            await asyncio.gather(*(p.stop(deadline) for p in tops))
            left = [p for p in left if p not in tops]

    async def _sweep(self) -> None:
        """Keepers have gone, and what still carries the run's mark is killed."""
        supervisor = self.supervisor
        keepers = [(entry.keeper, entry.keeper_start) for entry in supervisor.ledger.processes.values() if entry.keeper]
        end = time.monotonic() + PATIENCE
        while left := [(pid, start) for pid, start in keepers if procfs.alive(pid, start)]:
            if time.monotonic() > end:
                for pid, start in left:
                    procfs.kill(pid, start)
            await asyncio.sleep(0.005)
        escaped: set[int] = set()
        end = time.monotonic() + PATIENCE
        while (strays := procfs.marked(f"{supervisor.ledger.owner}:")) and time.monotonic() < end:
            for stray in strays:
                escaped.add(stray.pid)
                procfs.kill(stray.pid, stray.start)
            await asyncio.sleep(0.01)
        if escaped:
            pids = ", ".join(str(pid) for pid in sorted(escaped))
            survived = f"; {len(strays)} could not be killed" if strays else ""
            text = f"{len(escaped)} processes had escaped and were killed: {pids}{survived}"
            supervisor.tell(AlarmChanged(key="strays", state="raised", text=text))


def _asked(way: Way) -> OperatorAction:
    return OperatorAction(verb=way.verb, state="accepted", request=way.request, user=way.user)
