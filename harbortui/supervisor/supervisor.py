"""The supervisor of one run: brings a plan up, keeps it up, obeys the verbs, and ends it.

Guarantees: every change is in its journal before anybody is told. A state is claimed when it is so: `running` when
every process stands, `paused` when what runs has come to what the level promises, an end when nothing of the run is
left on the host. Killed and started again, it goes on where it was: children and their ends are found through their
keepers, wishes through `desired.json`.

On failure: a process whose end means the end of the run stops everything, with its reason as the run's reason; one
that means `hold` pauses the run and waits for an operator.
"""

import asyncio
import contextlib
import os
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harbortui.runs import desired as wishes
from harbortui.runs.events import (
    ALIVE,
    ENDED,
    AlarmChanged,
    Event,
    JournalOpened,
    OperatorAction,
    RunChanged,
    RunState,
    decode,
)
from harbortui.runs.journal import Journal
from harbortui.runs.layout import Run, private
from harbortui.supervisor import ledger as ledgers
from harbortui.supervisor import procfs
from harbortui.supervisor.alarms import AlarmBook
from harbortui.supervisor.ending import Ending
from harbortui.supervisor.facts import Watching
from harbortui.supervisor.kept import Kept, Order
from harbortui.supervisor.notify import notify
from harbortui.supervisor.pausing import Pausing
from harbortui.supervisor.plan import Plan, ProcessSpec, order
from harbortui.supervisor.process import Process
from harbortui.supervisor.secrets import Secrets

PROGRESS = frozenset({"episode.turn", "episode.finished", "step", "policy", "checkpoint"})
LIVED = 60.0
WORDLESS = 5.0
NOTED = ("finished", "failed", "holding", "suspended")


class Supervisor:
    def __init__(self, run: Run, plan: Plan, secrets: Secrets, ledger: ledgers.Ledger) -> None:
        self.run, self.plan, self.secrets, self.ledger = run, plan, secrets, ledger
        self.journal = Journal.open(run, "supervisor", "supervisor", ledger.attempt, demo=plan.demo)
        self.state: RunState = ledger.state  # type: ignore[assignment]
        self.reason, self.level = ledger.reason, ledger.level
        self.desired = wishes.read(run) or wishes.Desired(sequence=ledger.sequence)
        self.processes: dict[str, Process] = {}
        self.alarms = AlarmBook(ledger.alarms)
        self.watching = Watching(self)
        self.unsaved = False
        self.ending = Ending(self)
        self.pausing = Pausing(self)
        self._checkpoint: asyncio.Task[tuple[bool, str]] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._notices: list[asyncio.Future[None]] = []

    # what a process needs of us

    def tell(self, event: Event) -> bool:
        """Whether it is written; a full disk holds it in memory until there is room."""
        return self.journal.append(event)

    def remember(self, process: Process | None = None) -> None:
        if process:
            self.ledger.processes[process.spec.name] = process.entry()
        self.ledger.state, self.ledger.reason, self.ledger.level = self.state, self.reason, self.level
        try:
            ledgers.write(self.run, self.ledger)
            self.unsaved = False
        except OSError:
            self.unsaved = True

    def log(self, name: str) -> Path:
        return self.run.log(name)

    def mark(self, name: str) -> str:
        return f"{self.ledger.owner}:{name}:"

    def environment(self, spec: ProcessSpec) -> dict[str, str]:
        env = {**self.secrets.environment, **spec.env}
        env |= {
            "HARBORTUI_RUN": str(self.run.path),
            "HARBORTUI_PROCESS": spec.name,
            "HARBORTUI_ROLE": spec.role,
            "HARBORTUI_ATTEMPT": str(self.ledger.attempt),
            "HARBORTUI_TOKEN": self.secrets.token,
            "HARBORTUI_DEMO": "1" if self.plan.demo else "",
            "PYTHONUNBUFFERED": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "HARBOR_TELEMETRY": "off",
            "OMP_WAIT_POLICY": env.get("OMP_WAIT_POLICY", "passive"),
            procfs.MARK: self.mark(spec.name),
        }
        if spec.gpus:
            env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, spec.gpus))}
        return env

    async def spawn(self, spec: ProcessSpec) -> Kept:
        keep = private(self.run.runtime / "keep")
        order = Order(
            command=spec.command,
            env=self.environment(spec),
            cwd=spec.cwd or str(self.run.path),
            log=self.log(spec.name),
            log_bytes=self.plan.watch.log_bytes,
            log_files=self.plan.watch.log_files,
            redact=self.secrets.values(),
            socket=keep / f"{spec.name}.sock",
            exit=keep / f"{spec.name}.exit",
            stop_deadline=spec.stop.deadline,
        )

        def remember(kept: Kept) -> None:
            entry = self.processes[spec.name].entry()
            entry.keeper, entry.keeper_start = kept.keeper, kept.keeper_start
            self.ledger.processes[spec.name] = entry
            self.remember()

        return await Kept.spawn(order, self.mark(spec.name), remember)

    def may_end(self, spec: ProcessSpec) -> bool:
        """Whether its exit with 0 is its work done, and not something that went away."""
        others = [d for p in self.plan.processes for d in p.depends_on if d.process == spec.name]
        waited_for = any(dependency.until == "exited" for dependency in others)
        return spec.completes or spec.auxiliary or waited_for or spec.restart.policy == "never"

    def made_progress(self, name: str, pid: int) -> bool:
        """Whether the life that just ended brought the run forward, by its own journal or by its age."""
        process = self.processes[name]
        if process.was_ready and process.kept and time.time() - process.since > LIVED:
            return True
        try:
            with open(self.run.journal(name, pid, self.ledger.attempt), "rb") as file:
                lines = file.read(1 << 18).split(b"\n")[:-1]
        except OSError:
            return False
        for line in lines:
            with contextlib.suppress(ValueError):
                event = decode(line)
                if not isinstance(event, JournalOpened) and type(event).__struct_config__.tag in PROGRESS:
                    return True
        return False

    # life of the run

    async def begin(self, adopt: bool) -> None:
        for spec in order(self.plan):
            self.processes[spec.name] = Process(spec, self, self.processes)
        if adopt:
            await self._adopt()
        else:
            self.move("preparing", f"attempt {self.ledger.attempt}")
            for process in self.processes.values():
                process.begin()
        for process in self.processes.values():
            # a death that means hold was acted on in the life of an earlier supervisor
            if not (process.final.done() and process.spec.on_death == "hold"):
                self.background(self._mourn(process))
        self.background(self._until_running())
        self.background(self.watching.run())

    async def _adopt(self) -> None:
        keep = self.run.runtime / "keep"
        entries = {name: self.ledger.processes.get(name) or ledgers.Entry() for name in self.processes}
        adopting = [
            Kept.adopt(
                keep / f"{name}.sock",
                keep / f"{name}.exit",
                self.mark(name),
                (entry.keeper, entry.keeper_start),
                entry.state in ALIVE,
            )
            for name, entry in entries.items()
        ]
        for (name, entry), kept in zip(entries.items(), await asyncio.gather(*adopting), strict=True):
            self.processes[name].begin(kept, entry)
        if self.ledger.way:
            self.ending.carry_on(self.ledger.way)
        elif self.desired.pause and self.state != "holding":
            self.pausing.carry_on()
        elif self.state in ("pausing", "paused", "holding") and not self.desired.pause:
            self.pausing.resume(OperatorAction(verb="", state="accepted"))

    def revive(self, process: Process) -> None:
        """A process that had come to its final end has been started again."""
        self.background(self._mourn(process))

    def background(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            traceback.print_exception(error)

    def move(self, state: RunState, reason: str = "", level: str = "") -> None:
        self.state, self.reason, self.level = state, reason, level
        self.tell(RunChanged(state=state, reason=reason, level=level, backend=self.plan.backend, name=self.plan.name))
        self.remember()
        if state in NOTED:
            self._notices.append(asyncio.ensure_future(self._notify(state, reason)))

    async def _notify(self, state: str, reason: str) -> None:
        if problem := await notify(self.plan.notify, self.run, state, reason, self.secrets.environment):
            self.tell(AlarmChanged(key="notify", state="raised", text=problem, remedy="mend run.notify in the config"))

    async def _until_running(self) -> None:
        waiting = [p for p in self.processes.values() if not p.spec.auxiliary]
        for process in waiting:
            await process.wait_for("ready")
        if self.state == "preparing":
            self.move("running")

    async def _mourn(self, process: Process) -> None:
        """Wait for the final end of a process, and do what the plan says that it means."""
        well = await process.final
        spec = process.spec
        if self.ending.under_way or spec.auxiliary:
            return
        if well and spec.completes:
            self.ending.begin("finished", f"{spec.name} is done", checkpoint=False)
        elif not well and spec.on_death == "fail":
            self.ending.begin(
                "failed", f"{spec.name}: {process.reason}", checkpoint=spec.role not in ("orchestrator", "trainer")
            )
        elif not well and spec.on_death == "hold":
            self.hold(f"{spec.name}: {process.reason}")

    def hold(self, reason: str) -> None:
        """A guard stops dispatch and waits for an operator."""
        with contextlib.suppress(OSError):
            self.wish(pause="dispatch", since=time.time())
        self.move("holding", reason)

    # wishes

    def wish(self, **changes: Any) -> int:
        """Write what is wanted; the new sequence. An OSError (disk full) leaves everything as it was."""
        fresh = wishes.Desired(**{**{f: getattr(self.desired, f) for f in self.desired.__struct_fields__}, **changes})
        fresh.sequence = max(self.desired.sequence, self.ledger.sequence) + 1
        wishes.write(self.run, fresh)
        self.desired, self.ledger.sequence = fresh, fresh.sequence
        self.remember()
        return fresh.sequence

    def steered(self) -> list[Process]:
        return [p for p in self.processes.values() if p.spec.steered and p.state not in ("exited", "failed")]

    async def obeyed(self, sequence: int) -> None:
        """Until every steered process has acknowledged. One that dies meanwhile reads the file when it starts again."""

        def waits() -> str:
            known = self.watching.acknowledged()
            late = [p.spec.name for p in self.steered() if known.get(p.spec.name, -1) < sequence]
            return f"waits for {', '.join(late)} to obey" if late else ""

        await self.until(waits)

    async def until(self, waits: Callable[[], str]) -> None:
        """Until nothing is left to wait for. After some seconds it becomes the run's reason, as it changes."""
        why, said, told = self.reason, time.monotonic(), ""
        while what := waits():
            if time.monotonic() - said > WORDLESS and what != told:
                said, told = time.monotonic(), what
                self.move(self.state, f"{why}; {what}" if why else what, self.level)
            await asyncio.sleep(0.05)

    def came_true(self, asked: OperatorAction, answer: str, state: str = "true") -> None:
        if asked.request:
            self.tell(
                OperatorAction(verb=asked.verb, state=state, request=asked.request, user=asked.user, answer=answer)  # type: ignore[arg-type]
            )

    async def checkpoint(self, request: str) -> tuple[bool, str]:
        """Ask for a checkpoint, or join the one that is being taken, and wait until it is whole or has failed."""
        if not self._checkpoint or self._checkpoint.done():
            self.wish(checkpoint=request)
            self._checkpoint = self.background(self._until_whole(request))
        return await asyncio.shield(self._checkpoint)

    async def _until_whole(self, request: str) -> tuple[bool, str]:
        while True:
            found = self.watching.checkpoint(request)
            if found and found.state == "whole":
                return True, f"{found.id} is whole"
            if found:
                return False, found.reason or "it failed"
            if not self.checkpointer():
                return False, "the process that writes checkpoints is not up"
            await asyncio.sleep(0.05)

    def checkpointer(self) -> Process | None:
        return next(
            (p for p in self.processes.values() if p.spec.role == "orchestrator" and p.spec.steered and p.up), None
        )

    def status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "attempt": self.ledger.attempt,
            "state": self.state,
            "reason": self.reason,
            "level": self.level,
            "sequence": self.desired.sequence,
        }

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._notices, return_exceptions=True)
        if self.state in ENDED:
            self.ledger.processes.clear()
            self.remember()
        self.journal.close()
