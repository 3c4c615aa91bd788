"""The demo's rollout worker: takes orders, invents episodes turn by turn at the wanted rate.

What an episode does follows from the seed, its id and the policy's version, not from time. Held, it stands still
before its next turn. A worker that starts finds the episodes that its last life left open and tells their end.
"""

import asyncio
import contextlib
import math
import os
import random
import sys
import time
from collections import deque
from typing import Any

from harbortui.backends.demo.actor import Actor
from harbortui.backends.demo.wire import Wire
from harbortui.runs.desired import Desired
from harbortui.runs.events import (
    BadEvent,
    Cause,
    EpisodeFinished,
    EpisodeHeld,
    EpisodePhase,
    EpisodeStarted,
    EpisodeTurn,
    Event,
    decode,
)

COMMANDS = (
    "ls -la",
    "cat notes.txt",
    "grep -rn TODO .",
    "python3 solve.py",
    "git log --oneline",
    "make",
    "tar xf a.tgz",
)


class Episode:
    """A script of events, told one at a time."""

    def __init__(self, order: dict[str, Any], worker: "Worker") -> None:
        self.id, self.n, self.task, self.policy = order["id"], order["n"], order["task"], order["policy"]
        self.knobs, self.worker = worker.knobs, worker.name
        self.random = random.Random(f"{self.knobs.seed}:{self.id}:{self.n}:{self.policy}")
        self.began = time.monotonic()
        self.turns = self.prompt = self.completion = 0
        self.held_at: float | None = None
        self.script = self._script()

    def _script(self) -> Any:
        yield EpisodeStarted(
            id=self.id,
            n=self.n,
            worker=self.worker,
            task=self.task,
            trial=f"{self.task}__{self.id}",
            agent="demo",
            model="demo",
        )
        for phase in ("environment", "agent"):
            yield EpisodePhase(id=self.id, n=self.n, phase=phase)
        for turn in range(1, self.random.randint(2, min(8, max(2, self.knobs.max_turns))) + 1):
            yield self._turn(turn)
        yield EpisodePhase(id=self.id, n=self.n, phase="verifier")
        yield self.finish(*self._verdict())

    def _turn(self, turn: int) -> EpisodeTurn:
        self.turns = turn
        prompt, completion = 600 + 350 * turn, self.random.randint(40, 240)
        self.prompt, self.completion = self.prompt + prompt, self.completion + completion
        return EpisodeTurn(
            id=self.id,
            n=self.n,
            turn=turn,
            prompt_tokens=prompt,
            completion_tokens=completion,
            policy=self.policy,
            context=round(min(1.0, (prompt + completion) / self.knobs.context_limit), 4),
            commands=[self.random.choice(COMMANDS)],
            seconds=round(self.random.uniform(0.4, 6), 3),
            logprob=round(-self.random.uniform(0.1, 1.2), 4),
        )

    def _verdict(self) -> tuple[Cause, float | None, str]:
        dice = self.random.random()
        if dice < 0.02:
            return "environment", None, "demo: the sandbox did not start"
        if dice < 0.03:
            return "server", None, "demo: the model endpoint did not answer"
        if dice < 0.05:
            return "timeout_agent", 0.0, ""
        hardness = random.Random(self.task).uniform(-1, 3)
        solved = self.random.random() < 1 / (1 + math.exp(hardness - self.policy / 12))
        return ("solved", 1.0, "") if solved else ("failed", 0.0, "")

    def finish(self, cause: Cause, reward: float | None, error: str = "") -> EpisodeFinished:
        return EpisodeFinished(
            id=self.id,
            n=self.n,
            cause=cause,
            reward=reward,
            turns=self.turns,
            prompt_tokens=self.prompt,
            completion_tokens=self.completion,
            seconds=round(time.monotonic() - self.began, 3),
            policy=self.policy,
            error=error,
        )


class Worker(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.live: deque[Episode] = deque()
        self.held = False
        self.obeyed = 0
        self.wire: Wire | None = None
        self.policy: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.reading: asyncio.Future[bytes] | None = None
        self.room = max(1, self.knobs.episodes // self.knobs.workers)

    async def work(self) -> None:
        self._close_open_episodes()
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await self.journal_alive()
            await self._server_is_there()
            due = max(due + self.knobs.workers / self.rate, loop.time() - 0.25)
            if due > loop.time() + 0.002:
                await asyncio.sleep(due - loop.time())
            elif self.random.random() < 0.02:
                await asyncio.sleep(0)
            if self.held or not self.live:
                self.doing("waiting", "" if self.held else "orchestrator")
                await asyncio.sleep(0.02)
            else:
                self.doing("sampling")
                self._advance()

    def _advance(self) -> None:
        episode = self.live[0]
        self.live.rotate(-1)
        event = next(episode.script)
        self.journal.append(event)
        if isinstance(event, EpisodeFinished):
            self._done(episode, event)

    def _done(self, episode: Episode, event: EpisodeFinished) -> None:
        self.live.remove(episode)
        if self.wire:
            self.wire.send(
                done=event.id, n=event.n, cause=event.cause, reward=event.reward, tokens=event.completion_tokens
            )

    async def orders(self) -> None:
        while True:
            try:
                self.wire = wire = await Wire.connect(str(self.run.runtime / "orders.sock"))
            except OSError:
                await asyncio.sleep(0.1)
                continue
            wire.send(hello="rollouts", name=self.name, room=self.room)
            while order := await wire.hear():
                self.live.append(Episode(order, self))
            self.wire = None
            self._cancel_all("the orchestrator went away")

    async def _server_is_there(self) -> None:
        """An episode of a real run would be held by the endpoint; here the worker waits for the server's socket."""
        if self.policy and not self.policy[0].at_eof():
            return
        while True:
            try:
                self.policy = await asyncio.open_unix_connection(str(self.run.runtime / "server.sock"))
                self.reading = asyncio.ensure_future(self.policy[0].read())
                return
            except OSError:
                self.doing("waiting", "server")
                await asyncio.sleep(0.1)

    async def obey(self, wanted: Desired) -> None:
        hold = wanted.pause == "generate"
        if hold != self.held:
            self.held = hold
            for episode in self.live:
                since, episode.held_at = episode.held_at, time.monotonic() if hold else None
                seconds = 0.0 if hold or since is None else time.monotonic() - since
                self.journal.append(EpisodeHeld(id=episode.id, n=episode.n, held=hold, seconds=round(seconds, 3)))
        for order in wanted.episodes:
            for episode in [e for e in self.live if e.id == order.id and order.sequence > self.obeyed]:
                self._end(episode, f"{order.do} asked by the operator", requeue=order.do == "requeue")
        self.obeyed = wanted.sequence

    def _end(self, episode: Episode, why: str, requeue: bool = False) -> None:
        event = episode.finish("cancelled", None, why)
        self.journal.append(event)
        self.live.remove(episode)
        if self.wire:
            self.wire.send(done=event.id, n=event.n, cause="cancelled", reward=None, tokens=0, requeue=requeue)

    def _cancel_all(self, why: str) -> None:
        for episode in list(self.live):
            self.journal.append(episode.finish("cancelled", None, why))
        self.live.clear()

    def _close_open_episodes(self) -> None:
        """Earlier lives of this worker may have ended in the middle of episodes."""
        for path in self.run.journals.glob(f"{self.name}-*-{self.attempt}.jsonl"):
            if path != self.run.journal(self.name, os.getpid(), self.attempt):
                for name, n in still_open(path.read_bytes().split(b"\n")):
                    self.journal.append(EpisodeFinished(id=name, n=n, cause="internal", error="the worker died"))


def still_open(lines: list[bytes]) -> list[tuple[str, int]]:
    found: dict[tuple[str, int], None] = {}
    for line in lines:
        with contextlib.suppress(BadEvent):
            event: Event | Any = decode(line)
            if isinstance(event, EpisodeStarted):
                found[event.id, event.n] = None
            elif isinstance(event, EpisodeFinished):
                found.pop((event.id, event.n), None)
    return list(found)


class Rollouts(Worker):
    async def until_stopped(self) -> None:
        try:
            await self.work()
        finally:
            self._cancel_all("the run is stopping")


if __name__ == "__main__":
    actor = Rollouts()
    sys.exit(actor.act(actor.until_stopped(), actor.orders(), actor.steer(actor.obey)))
