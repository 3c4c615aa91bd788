"""The demo's orchestrator: groups, orders, steps, checkpoints; real bookkeeping over invented episodes.

Guarantees: an order is given out until somebody has ended it; a worker that dies loses only its running episodes, which
are given out again under the same id with the next `n`. A checkpoint is whole (manifest last, renamed into place) or
not there; every start goes on from the newest whole one. A policy version is never given out twice.

On failure: what had not reached a checkpoint is played again under new ids.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from harbortui.backends.demo.actor import Actor, lives
from harbortui.backends.demo.wire import Wire
from harbortui.runs.desired import Desired
from harbortui.runs.events import (
    POLICY_CAUSES,
    CheckpointChanged,
    EpisodeQueued,
    GroupChanged,
    MetricRow,
    StepDone,
)
from harbortui.runs.layout import private, write_whole

TASKS = (
    "fix-permissions",
    "find-the-port",
    "untar-and-sum",
    "git-bisect",
    "csv-to-json",
    "kill-the-runaway",
    "log-triage",
    "rename-photos",
    "dedupe-lines",
    "parse-dates",
    "restore-backup",
    "word-count",
)


@dataclass
class Group:
    id: str
    task: str
    open: int
    results: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Employee:
    wire: Wire
    room: int
    orders: dict[str, dict[str, Any]] = field(default_factory=dict)


class Orchestrator(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.step = self.number = self.counted = 0
        self.life = lives(self.run, self.name, self.attempt)
        self.queue: deque[dict[str, Any]] = deque()
        self.groups: dict[str, Group] = {}
        self.ready: list[Group] = []
        self.workers: dict[str, Employee] = {}
        self.trainer: Wire | None = None
        self.trained: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.moved = asyncio.Event()
        self.dispatch = True
        self.asked_checkpoint = ""
        self._resume()
        self.policy = self._newest_policy()

    # what others say

    async def listen(self) -> None:
        path = private(self.run.runtime) / "orders.sock"
        path.unlink(missing_ok=True)
        await asyncio.start_unix_server(self._client, str(path), limit=1 << 20)
        await self.stopping.wait()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            hello = await wire.hear()
            if hello and hello["hello"] == "rollouts":
                await self._employ(hello["name"], Employee(wire, hello["room"]))
            elif hello:
                await self._with_trainer(wire)
        wire.close()

    async def _employ(self, name: str, worker: Employee) -> None:
        self.workers[name] = worker
        self.moved.set()
        while done := await worker.wire.hear():
            order = worker.orders.pop(done["done"], None)
            if order and done.get("requeue"):
                self._requeue(order)
            elif order:
                self._result(order, done)
            self.moved.set()
        if self.workers.get(name) is worker:
            del self.workers[name]
        for order in worker.orders.values():
            print(f"{name} was lost with {order['id']}; given out again", flush=True)
            self._requeue(order)
        self.moved.set()

    async def _with_trainer(self, wire: Wire) -> None:
        self.trainer = wire
        self.moved.set()
        while done := await wire.hear():
            self.trained.put_nowait(done)
        if self.trainer is wire:
            self.trainer = None
        self.trained.put_nowait({})

    # orders

    def _requeue(self, order: dict[str, Any]) -> None:
        again = {**order, "n": order["n"] + 1}
        self._queued(again)
        self.queue.appendleft(again)

    def _queued(self, order: dict[str, Any]) -> None:
        self.journal.append(
            EpisodeQueued(
                id=order["id"],
                n=order["n"],
                task=order["task"],
                group=order["group"],
                policy=order["policy"],
                step=self.step + 1,
            )
        )

    def _result(self, order: dict[str, Any], done: dict[str, Any]) -> None:
        group = self.groups.get(order["group"])
        if not group:
            return
        group.results.append(done)
        if len(group.results) == group.open:
            del self.groups[group.id]
            self.ready.append(group)
            self._group(group, "complete")

    def _group(self, group: Group, state: Any, reason: str = "") -> None:
        step = self.step + 1
        self.journal.append(
            GroupChanged(
                id=group.id, state=state, task=group.task, size=group.open, policy=self.policy, step=step, reason=reason
            )
        )

    def _open_group(self) -> None:
        self.number += 1
        task = TASKS[self.random.randrange(len(TASKS))]
        group = Group(f"g{self.attempt}-{self.life}-{self.number:06d}", task, self.knobs.group_size)
        self.groups[group.id] = group
        self._group(group, "opened")
        for i in range(group.open):
            order = {"id": f"ep{group.id[1:]}-{i}", "n": 1, "task": task, "group": group.id, "policy": self.policy}
            self._queued(order)
            self.queue.append(order)

    async def dispatching(self) -> None:
        while True:
            await self.journal_alive()
            free = [w for w in self.workers.values() if len(w.orders) < w.room]
            wanted = (len(self.ready) + len(self.groups)) < 2 * self.knobs.groups_per_step
            if self.dispatch and free and (self.queue or wanted):
                if not self.queue:
                    self._open_group()
                worker = min(free, key=lambda w: len(w.orders))
                order = self.queue.popleft()
                worker.orders[order["id"]] = order
                worker.wire.send(**order)
                continue
            self.moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await self.moved.wait()

    # steps

    async def stepping(self) -> None:
        began = time.monotonic()
        while not (self.knobs.steps and self.step >= self.knobs.steps) and not (
            self.knobs.seconds and time.monotonic() - began > self.knobs.seconds
        ):
            if self.asked_checkpoint:
                await self._checkpoint(self.asked_checkpoint)
                self.asked_checkpoint = ""
            if len(self.ready) < self.knobs.groups_per_step:
                self.doing("waiting", "rollouts")
                await asyncio.sleep(0.02)
            elif await self._train() and self.step % self.knobs.checkpoint_every == 0:
                await self._checkpoint("")
        await self._checkpoint("")

    async def _train(self) -> bool:
        batch, started = self.ready[: self.knobs.groups_per_step], time.monotonic()
        self.doing("waiting", "trainer")
        while not self.trainer:
            await asyncio.sleep(0.05)
            if self.asked_checkpoint:
                return False
        while not self.trained.empty():
            self.trained.get_nowait()
        policy = self._next_policy()
        self.trainer.send(step=self.step + 1, policy=policy)
        answer = await self.trained.get()
        if not answer:
            print("the trainer was lost in the middle of a step; the step is tried again", flush=True)
            return False
        del self.ready[: len(batch)]
        self.step, self.policy = self.step + 1, policy
        self._tell_step(batch, answer["values"], time.monotonic() - started)
        return True

    def _tell_step(self, batch: list[Group], values: dict[str, float], seconds: float) -> None:
        results = [result for group in batch for result in group.results]
        own = [r["reward"] or 0.0 for r in results if r["cause"] in POLICY_CAUSES]
        means = sorted(sum(r["reward"] or 0 for r in g.results) / len(g.results) for g in batch)
        left_out: dict[str, int] = {}
        for result in results:
            if result["cause"] not in POLICY_CAUSES:
                left_out[result["cause"]] = left_out.get(result["cause"], 0) + 1
        self.counted += len(results)
        self.journal.append(
            StepDone(
                step=self.step,
                policy=self.policy,
                reward=round(sum(r["reward"] or 0.0 for r in results) / len(results), 5),
                honest_reward=round(sum(own) / len(own), 5) if own else None,
                reward_low=round(means[0], 5),
                reward_high=round(means[-1], 5),
                solve_rate=round(sum(r["cause"] == "solved" for r in results) / len(results), 5),
                loss=values["loss"],
                entropy=values["entropy"],
                mismatch_kl=values["mismatch_kl"],
                grad_norm=values["grad_norm"],
                learning_rate=values["learning_rate"],
                tokens=sum(r["tokens"] for r in results),
                seconds=round(seconds, 3),
                episodes=len(results),
                left_out=left_out,
                total=self.knobs.steps or None,
            )
        )
        zero = sum(len({r["reward"] for r in g.results}) == 1 for g in batch) / len(batch)
        self.journal.append(MetricRow(step=self.step, values={"groups/zero_variance": round(zero, 4)}))
        for group in batch:
            self._group(group, "trained")

    # policy versions and checkpoints

    def _newest_policy(self) -> int:
        try:
            return int((self.run.path / "weights" / "newest").read_text())
        except (OSError, ValueError):
            return 0

    def _next_policy(self) -> int:
        fresh = self._newest_policy() + 1
        write_whole(self.run.path / "weights" / "newest", str(fresh).encode())
        return fresh

    async def _checkpoint(self, request: str) -> None:
        path = self.run.checkpoints / f"step_{self.step:06d}"

        def tell(state: Any, **more: Any) -> None:
            self.journal.append(
                CheckpointChanged(
                    id=path.name,
                    state=state,
                    step=self.step,
                    policy=self.policy,
                    request=request,
                    path=f"checkpoints/{path.name}",
                    **more,
                )
            )

        if request:
            tell("asked")
        if not path.exists():
            tell("writing")
            try:
                await asyncio.sleep(0.05)
                size = self._write(path)
            except OSError as error:
                tell("failed", reason=error.strerror or "")
                return
        else:
            size = sum(f.stat().st_size for f in path.iterdir())
        tell("whole", bytes=size)
        self._prune()

    def _write(self, path: Any) -> int:
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        state = json.dumps({"step": self.step, "number": self.number, "counted": self.counted, "demo": True}).encode()
        files = {"orchestrator.json": state, "weights.bin": self.random.randbytes(1 << 16)}
        for name, data in files.items():
            write_whole(aside / name, data, durable=True)
        manifest = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()
        }
        write_whole(
            aside / "manifest.json",
            json.dumps({"demo": True, "step": self.step, "files": manifest}).encode(),
            durable=True,
        )
        aside.rename(path)
        return sum(len(data) for data in files.values())

    def _whole(self) -> list[Any]:
        found = sorted(p for p in self.run.checkpoints.glob("step_*") if p.is_dir())
        return [p for p in found if self._verified(p)]

    @staticmethod
    def _verified(path: Any) -> bool:
        try:
            files = json.loads((path / "manifest.json").read_bytes())["files"]
            return all(
                hashlib.sha256((path / name).read_bytes()).hexdigest() == said["sha256"] for name, said in files.items()
            )
        except (OSError, ValueError, KeyError):
            return False

    def _prune(self) -> None:
        for old in self._whole()[: -self.knobs.keep_last]:
            shutil.rmtree(old, ignore_errors=True)
            self.journal.append(
                CheckpointChanged(id=old.name, state="pruned", step=int(old.name[5:]), path=f"checkpoints/{old.name}")
            )

    def _resume(self) -> None:
        whole = self._whole()
        if whole:
            state = json.loads((whole[-1] / "orchestrator.json").read_bytes())
            self.step, self.number, self.counted = state["step"], state["number"], state["counted"]
            print(f"goes on from {whole[-1].name}", flush=True)

    async def obey(self, wanted: Desired) -> None:
        self.dispatch = not wanted.pause
        if wanted.checkpoint and wanted.checkpoint != self._last_request:
            self._last_request = self.asked_checkpoint = wanted.checkpoint

    _last_request = ""


if __name__ == "__main__":
    actor = Orchestrator()
    sys.exit(actor.act(actor.stepping(), actor.listen(), actor.dispatching(), actor.steer(actor.obey)))
