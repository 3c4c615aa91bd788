"""A run directory like a real one, of any size, written quickly: lines straight into files, past the journals.

Guarantees: the same arguments give the same bytes. Every file is in order of time. About twenty events per episode:
groups of eight on one task, several workers in parallel, some attempts that are made again, one resume half-way.
It stops in the middle of things: about 170 episodes are alive when the last one starts.
"""

import heapq
import random
from io import BufferedWriter
from pathlib import Path

from harbortui.runs import events as ev

BEGIN = 1_750_000_000.0
GROUP = 8
PER_STEP = 64
WORKERS = 4
MORE_OR_LESS = 8
TURNS = 13
CAUSES: tuple[ev.Cause, ...] = (
    *("solved",) * 45, *("failed",) * 40, *("context",) * 5, *("timeout_agent",) * 5, *("environment",) * 4, "verifier",
)  # fmt: skip
COMMANDS = ["pytest -q tests/test_1.py 2>&1 | tail -1", "pytest -q tests/test_2.py 2>&1 | tail -2"]


def write(run: Path, episodes: int = 100_000, tasks: int = 200, seed: int = 7, begin: float = BEGIN) -> int:
    """Write the journals of a run with so many episodes, a second apart; how many events that were."""
    return _Synthesis(run, episodes, tasks, seed, begin).write()


class _Synthesis:
    def __init__(self, run: Path, episodes: int, tasks: int, seed: int, begin: float) -> None:
        self.begin = begin
        self.dice = random.Random(seed)
        self.episodes, self.tasks = episodes, tasks
        self.steps = max(1, episodes // PER_STEP)
        self.attempt, self.step, self.count = 1, 1, 0
        self.names = ["supervisor", "orchestrator", "trainer", *(f"rollouts-{i}" for i in range(WORKERS))]
        folder = run / "journal"
        folder.mkdir(parents=True, exist_ok=True)
        self.files: dict[str, BufferedWriter] = {
            name: (folder / f"{name}-{100 + i}-1.jsonl").open("wb", 1 << 20) for i, name in enumerate(self.names)
        }
        self.waiting: dict[str, list[tuple[float, int, bytes]]] = {name: [] for name in self.names}

    def say(self, process: str, t: float, event: ev.Event) -> None:
        self.count += 1
        event.t, event.m, event.attempt = round(t, 3), round(t - self.begin + 50, 3), self.attempt
        heapq.heappush(self.waiting[process], (t, self.count, ev.encode(event) + b"\n"))

    def write_until(self, t: float) -> None:
        for name, file in self.files.items():
            lines = self.waiting[name]
            while lines and lines[0][0] < t:
                file.write(heapq.heappop(lines)[2])

    def write(self) -> int:
        for i, name in enumerate(self.names):
            role = name.split("-")[0]
            self.say(name, self.begin, ev.JournalOpened(process=name, role=role, pid=100 + i))
            self.say(
                "supervisor", self.begin + i, ev.ProcessChanged(process=name, role=role, state="ready", pid=100 + i)
            )
        self.say("supervisor", self.begin, ev.RunChanged(state="running", backend="local", name="synthetic"))
        t = self.begin + 10
        for number in range(self.episodes):
            if number and number % PER_STEP == 0:
                self.tell_step(t)
            self.write_until(t)
            t += 0.9 + self.dice.random() * 0.2
            self.tell_episode(number, t)
        for file in self.files.values():
            file.close()
        return self.count - sum(map(len, self.waiting.values()))

    def tell_episode(self, number: int, t: float) -> None:
        group = f"g{self.attempt}-{number // GROUP}"
        task = f"task-{number // GROUP % self.tasks:04d}"
        if number % GROUP == 0:
            opened = ev.GroupChanged(id=group, state="opened", task=task, size=GROUP, policy=self.step)
            self.say("orchestrator", t, opened)
        for n in (1, 2) if self.dice.random() < 0.02 else (1,):
            self.tell_attempt(f"e{number:07d}", n, task, group, f"rollouts-{number % WORKERS}", t + 300 * (n - 1))
        if number % GROUP == GROUP - 1:
            self.say("orchestrator", t + 400, ev.GroupChanged(id=group, state="trained", step=self.step))

    def tell_attempt(self, name: str, n: int, task: str, group: str, worker: str, t: float) -> None:
        dice, step, trial = self.dice, self.step, f"{task}__{n}x"
        self.say("orchestrator", t, ev.EpisodeQueued(id=name, n=n, task=task, group=group, policy=step))
        started = ev.EpisodeStarted(
            id=name, n=n, worker=worker, task=task, trial=trial, agent="terminus-2", model="tiny"
        )
        self.say(worker, t + 1, started)
        self.say(worker, t + 1, ev.EpisodePhase(id=name, n=n, phase="environment"))
        t += 5 + dice.random() * 4
        self.say(worker, t, ev.EpisodePhase(id=name, n=n, phase="agent"))
        turns = dice.randint(TURNS - MORE_OR_LESS, TURNS + MORE_OR_LESS)
        said = 0
        for turn in range(1, turns + 1):
            t += 2 + dice.random() * 20
            tokens = {"prompt_tokens": 700 * turn, "completion_tokens": dice.randint(80, 900)}
            said += tokens["completion_tokens"]
            known = {"context": turn / 46, "commands": COMMANDS, "policy": step, "seconds": dice.random() * 9}
            self.say(worker, t, ev.EpisodeTurn(id=name, n=n, turn=turn, **tokens, **known))
        self.say(worker, t, ev.EpisodePhase(id=name, n=n, phase="verifier"))
        cause = dice.choice(CAUSES)
        reward = {"solved": 1.0, "failed": dice.randint(0, 9) / 10}.get(cause)
        tokens = {"prompt_tokens": 700 * turns, "completion_tokens": said}
        known = {"turns": turns, "seconds": round(t % 500, 2), "policy": step, "path": f"trials/{trial}"}
        ended = ev.EpisodeFinished(id=name, n=n, cause=cause, reward=reward, **tokens, **known)
        self.say(worker, t + 3 + dice.random() * 6, ended)

    def tell_step(self, t: float) -> None:
        dice, step = self.dice, self.step
        reward = min(0.95, 0.2 + 0.6 * step / self.steps + 0.1 * dice.random())
        told = {"reward": reward, "honest_reward": reward + 0.01, "solve_rate": reward, "loss": dice.gauss(0, 0.1)}
        told |= {"entropy": dice.random(), "grad_norm": dice.random(), "learning_rate": 1e-5, "seconds": 55.0}
        counts = {"tokens": 400_000, "episodes": PER_STEP, "left_out": {"environment": 2}, "total": self.steps}
        self.say("trainer", t, ev.StepDone(step=step, policy=step, **told, **counts))
        self.say("trainer", t, ev.MetricRow(step=step, values={f"optim/value_{i}": dice.random() for i in range(20)}))
        self.say("orchestrator", t + 1, ev.PolicyPublished(policy=step, step=step))
        for after, doing in enumerate(("training", "publishing", "waiting")):
            self.say("trainer", t + after, ev.Activity(doing=doing, on="rollouts-0" if doing == "waiting" else ""))
        for process in ("", "trainer", *self.names[3:]):
            for k in range(4):
                host = {"disk_free": 80 * 10**9, "disk_used": 20 * 10**9, "load": 1.5} if not process else {}
                sample = ev.Resources(process=process, cpu=dice.random(), rss=dice.randint(10**8, 10**9), **host)
                self.say("supervisor", t + 15 * k, sample)
        if step % 10 == 0:
            for after, state in enumerate(("writing", "whole")):
                self.say("trainer", t + after, ev.CheckpointChanged(id=f"step_{step:06d}", state=state, step=step))
        if step % 25 == 0:
            self.say("supervisor", t, ev.AlarmChanged(key=f"slow-{step % 3}", state="raised", text="slow"))
            self.say("supervisor", t + 30, ev.AlarmChanged(key=f"slow-{step % 3}", state="cleared"))
            self.say("supervisor", t, ev.OperatorAction(verb="note", state="accepted", request=f"r{step}"))
        if step == self.steps // 2 and self.attempt == 1:
            self.attempt, self.step = 2, max(1, step - 3)
            self.say("supervisor", t + 1, ev.RunChanged(state="running", backend="local", resumed_from=self.step))
        self.step += 1
