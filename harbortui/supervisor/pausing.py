"""Pausing and going on: what is asked at once, and said only when it is so.

Guarantees: `paused` is told when every steered process has acknowledged and no episode runs (dispatch), or none that is
not held (generate); `running` when every steered process has acknowledged. A wish that another one overtakes is told
as failed, so that nobody waits for it for ever.

On failure: what it still waits for becomes the run's reason after a few seconds; without an index nothing can be known,
and that is the reason then.
"""

import asyncio
import time
from typing import TYPE_CHECKING

from harbortui.runs.events import OperatorAction

if TYPE_CHECKING:
    from harbortui.supervisor.supervisor import Supervisor


class Pausing:
    def __init__(self, supervisor: "Supervisor") -> None:
        self.supervisor = supervisor
        self._task: asyncio.Task[None] | None = None
        self._asked: OperatorAction | None = None

    def pause(self, level: str, asked: OperatorAction) -> None:
        supervisor = self.supervisor
        sequence = supervisor.wish(
            pause=level, since=supervisor.desired.since if supervisor.desired.pause else time.time()
        )
        self.overtake(asked)
        supervisor.move("pausing", f"asked by {asked.user}" if asked.user else "", level)
        self._task = supervisor.background(self._until_paused(level, sequence, asked))

    def resume(self, asked: OperatorAction) -> None:
        sequence = self.supervisor.wish(pause="", since=0.0)
        self.overtake(asked)
        self._task = self.supervisor.background(self._until_running(sequence, asked))

    def carry_on(self) -> None:
        """A supervisor before this one was asked to pause; whether it has come true is looked at again."""
        desired = self.supervisor.desired
        if self.supervisor.state not in ("pausing", "paused"):
            self.supervisor.move("pausing", level=desired.pause)
        asked = OperatorAction(verb="pause", state="accepted")
        self._task = self.supervisor.background(self._until_paused(desired.pause, desired.sequence, asked))

    def overtake(self, asked: OperatorAction | None = None) -> None:
        """Nobody waits any more for what was asked before."""
        if self._task and not self._task.done():
            self._task.cancel()
            if self._asked:
                by = f"overtaken by {asked.verb}" if asked else "the run is ending"
                self.supervisor.came_true(self._asked, by, "failed")
        self._asked = asked

    async def _until_paused(self, level: str, sequence: int, asked: OperatorAction) -> None:
        supervisor = self.supervisor
        await supervisor.obeyed(sequence)
        await supervisor.until(lambda: supervisor.watching.still_running(held_too=level != "generate"))
        if supervisor.state == "pausing":
            _, held = supervisor.watching.running() or (0, 0)
            supervisor.move("paused", f"{held} episodes held" if held else "no episode is running", level)
            supervisor.came_true(asked, supervisor.reason)

    async def _until_running(self, sequence: int, asked: OperatorAction) -> None:
        supervisor = self.supervisor
        await supervisor.obeyed(sequence)
        if supervisor.state in ("pausing", "paused", "holding"):
            supervisor.move("running")
        supervisor.came_true(asked, "running")
