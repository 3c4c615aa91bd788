"""What the supervisor does for each verb.

Guarantees: each request is answered within milliseconds with what will be done, and journaled as accepted or refused
with who asked; when it has become true, that is journaled too. Nothing is promised that the run's state does not allow.

On failure: a verb that cannot be obeyed (no such process, a full disk, a run that is ending) is refused in a sentence.
"""

import asyncio
import difflib
import time
from typing import Any

from harbortui.runs.desired import EpisodeOrder
from harbortui.runs.events import Note, OperatorAction
from harbortui.supervisor.kept import Kept
from harbortui.supervisor.supervisor import Supervisor
from harbortui.supervisor.verbs import BadRequest, Verb, parse

KEPT_ORDERS = 256


class Commands:
    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._count = 0

    async def handle(self, asked: dict[str, Any]) -> tuple[bool, str, str]:
        supervisor = self.supervisor
        self._count += 1
        request = str(asked.get("request") or f"{supervisor.ledger.attempt}-{time.time_ns():x}-{self._count}")[:64]
        arguments = asked.get("arguments", {})
        action = OperatorAction(
            verb=str(asked.get("verb"))[:64],
            state="accepted",
            request=request,
            user=asked["user"],
            uid=asked["uid"],
            tty=str(asked.get("tty", ""))[:64],
            arguments=arguments if isinstance(arguments, dict) else {},
        )
        try:
            verb, values = parse(asked.get("verb"), arguments)
            if verb.name == "ping":
                return True, f"{supervisor.run.name} is {supervisor.state}", request
            self._allowed(verb)
            answer = getattr(self, "_" + verb.name)(action, **values)
            action.answer = await answer if asyncio.iscoroutine(answer) else answer
        except BadRequest as refusal:
            action.state, action.answer = "refused", str(refusal)
        except OSError as error:
            action.state, action.answer = "refused", f"the wish could not be written down: {error.strerror}"
        if not supervisor.tell(action) and action.state != "refused":
            action.answer += " (held in memory: the journal cannot be written)"
        return action.state != "refused", action.answer, request

    def _allowed(self, verb: Verb) -> None:
        if self.supervisor.state == "stopping" and verb.name not in ("stop", "suspend", "note"):
            raise BadRequest(f"{verb.name}: the run is stopping ({self.supervisor.reason})")

    def _pause(self, asked: OperatorAction, level: str) -> str:
        supervisor = self.supervisor
        if not supervisor.steered():
            raise BadRequest("pause: no process of this run can be paused")
        if supervisor.state == "paused" and supervisor.level == level:
            return f"already paused ({level})"
        supervisor.pausing.pause(level, asked)
        live, _ = supervisor.watching.running() or ("the", 0)
        if level == "generate":
            return f"holding {live} running episodes at their next model call; no new one starts"
        return f"no new episode starts; {live} running ones finish"

    def _resume(self, asked: OperatorAction) -> str:
        if not self.supervisor.desired.pause:
            raise BadRequest(f"resume: the run is {self.supervisor.state}, nothing is paused or held")
        self.supervisor.pausing.resume(asked)
        return "going on"

    def _checkpoint(self, asked: OperatorAction) -> str:
        process = self.supervisor.checkpointer()
        if not process:
            raise BadRequest("checkpoint: the process that writes checkpoints is not up")
        self.supervisor.background(self._take(asked))
        return f"{process.spec.name} is asked for a checkpoint"

    async def _take(self, asked: OperatorAction) -> None:
        whole, answer = await self.supervisor.checkpoint(asked.request)
        self.supervisor.came_true(asked, answer, "true" if whole else "failed")

    def _stop(self, asked: OperatorAction, drain: bool, now: bool) -> str:
        if drain and now:
            raise BadRequest("stop: --drain and --now exclude each other")
        reason = f"stopped by {asked.user}"
        self.supervisor.ending.begin("finished", reason, drain=drain, now=now, asked=asked)
        if now:
            return "stopping at once, without a checkpoint"
        return (
            "running episodes finish, then a checkpoint, then the end"
            if drain
            else "taking a checkpoint, then stopping"
        )

    def _suspend(self, asked: OperatorAction) -> str:
        self.supervisor.ending.begin("suspended", f"suspended by {asked.user}", asked=asked)
        return "taking a checkpoint, then freeing everything; `harbortui run --resume` goes on"

    async def _restart(self, asked: OperatorAction, process: str) -> str:
        found = self.supervisor.processes.get(process)
        if not found:
            raise BadRequest(f"restart: no process {process!r}; there are {', '.join(self.supervisor.processes)}")
        was, before = found.state, found.kept
        if not await found.restart():
            raise BadRequest(f"restart: {process} is {was}; wait until it has ended or what it waits for is there")
        if was in ("exited", "failed"):
            self.supervisor.revive(found)
        self.supervisor.background(self._until_up(process, before, asked))
        return f"{process} is being ended and starts again" if before else f"{process} starts again"

    async def _until_up(self, name: str, before: Kept | None, asked: OperatorAction) -> None:
        process = self.supervisor.processes[name]
        async with process.changed:
            await process.changed.wait_for(lambda: process.kept is not before or process.final.done())
        up = await process.wait_for("ready")
        self.supervisor.came_true(asked, f"{name} is {process.state}", "true" if up else "failed")

    def _episode(self, asked: OperatorAction, action: str, id: str) -> str:
        supervisor = self.supervisor
        if supervisor.watching.knows_episode(id) is False:
            raise BadRequest(f"episode: no episode {id!r}; `harbortui events --kind episode.started` lists them")
        order = EpisodeOrder(id, action, supervisor.desired.sequence + 1)  # type: ignore[arg-type]
        sequence = supervisor.wish(episodes=[*supervisor.desired.episodes, order][-KEPT_ORDERS:])
        supervisor.background(self._obeyed(sequence, asked))
        return f"{id} is told to {action}"

    def _set(self, asked: OperatorAction, key: str, value: str) -> str:
        live = self.supervisor.plan.live
        if key not in live:
            near = difflib.get_close_matches(key, live, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"live are: {', '.join(live) or 'none'}"
            raise BadRequest(f"set: {key!r} cannot change while the run goes on; {hint}")
        try:
            found = live[key].read(value)
        except ValueError:
            raise BadRequest(f"set: {key}: found {value!r}, allowed: {live[key].allowed()}") from None
        supervisor = self.supervisor
        sequence = supervisor.wish(settings={**supervisor.desired.settings, key: found})
        supervisor.background(self._obeyed(sequence, asked))
        return f"{key} becomes {found}"

    async def _obeyed(self, sequence: int, asked: OperatorAction) -> None:
        await self.supervisor.obeyed(sequence)
        self.supervisor.came_true(asked, "obeyed")

    def _note(self, asked: OperatorAction, text: str) -> str:
        self.supervisor.tell(Note(text=text, user=asked.user))
        return "noted"
