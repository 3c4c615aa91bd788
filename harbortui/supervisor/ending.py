"""How a run ends: drained if asked, a last checkpoint, everything stopped in order, nothing left, and only then said.

Guarantees: dependents stop before what they depend on, the auxiliary processes last. The end is told when no keeper of
the run lives and nothing carries its mark. Asked again, the new way of ending replaces the old one. The way is in the
ledger, so that a supervisor that takes over carries it out.

On failure: an ending that goes wrong is tried once more without ceremony, and the run is `failed` with what went wrong.
"""

import asyncio
import signal
import time
from typing import TYPE_CHECKING

from harbortui.runs.events import OperatorAction, RunState
from harbortui.supervisor import procfs
from harbortui.supervisor.alarms import Alarm

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
        if self._task:
            self._task.cancel()
        self.supervisor.pausing.overtake()
        asked = asked or OperatorAction(verb="stop", state="accepted")
        self._task = asyncio.ensure_future(self._run(state, reason, checkpoint and not now, drain, now, asked))
        self._task.add_done_callback(self._look_at)

    def _look_at(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task is not self._task or not (error := task.exception()):
            return
        if self._went_wrong:
            self.told.set()
            return
        self._went_wrong = f"ending the run went wrong: {type(error).__name__}: {error}"
        self.begin("failed", self._went_wrong, now=True)

    async def _run(
        self, state: RunState, reason: str, checkpoint: bool, drain: bool, now: bool, asked: OperatorAction
    ) -> None:
        supervisor = self.supervisor
        supervisor.ledger.ending = state
        if supervisor.state != "stopping":
            supervisor.move("stopping", reason)
        if drain:
            await self._drain()
        if checkpoint:
            reason += await self._last_checkpoint(asked.request or f"end-{time.time():.3f}")
        await self._stop_all(1.0 if now else None)
        await self._sweep()
        supervisor.move(state, reason)
        supervisor.came_true(asked, reason)
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
        ledger = self.supervisor.ledger
        keepers = [(entry.keeper, entry.keeper_start) for entry in ledger.processes.values() if entry.keeper]
        while any(procfs.alive(pid, start) for pid, start in keepers):
            await asyncio.sleep(0.005)
        strays = procfs.marked(f"{ledger.owner}:")
        for stray in strays:
            procfs.kill(stray.pid, stray.start, signal.SIGKILL)
        if strays:
            pids = ", ".join(str(stray.pid) for stray in strays)
            self.supervisor.raise_alarm(
                Alarm("strays", f"{len(strays)} processes had escaped and were killed: {pids}", kept=True)
            )
