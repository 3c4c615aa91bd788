"""Stories for tests of the run directory: events as a run tells them, and journals that hold them."""

import random
from collections.abc import Iterable
from pathlib import Path

from harbortui.runs import events as ev
from harbortui.runs.layout import Run

BEGIN = 1_750_000_000.0
Told = tuple[str, ev.Event]


def make_run(path: Path) -> Run:
    (path / "journal").mkdir(parents=True)
    return Run(path)


def journal_of(run: Run, process: str, pid: int = 100, attempt: int = 1) -> Path:
    return run.journal(process, pid, attempt)


def write(run: Run, told: Iterable[Told], pid: int = 100) -> None:
    """Append events to a journal per process, as they are."""
    for process, event in told:
        with journal_of(run, process, pid).open("ab") as file:
            file.write(ev.encode(event) + b"\n")


def story(seed: int, episodes: int = 12) -> list[Told]:
    """A run with retries, holds, evaluations, groups that are trained late, and a resume; in order of time."""
    dice = random.Random(seed)
    told: list[Told] = []
    attempt, step, t = 1, 0, BEGIN

    def say(process: str, after: float, event: ev.Event) -> None:
        event.t, event.m, event.attempt = round(t + after, 3), round(t + after - BEGIN + 10, 3), attempt
        told.append((process, event))

    say("supervisor", 0, ev.RunChanged(state="running", backend="demo", name="story"))
    for process in ("trainer", "rollouts-0"):
        say("supervisor", dice.random(), ev.ProcessChanged(process=process, role=process, state="ready", pid=5))
    for number in range(episodes):
        t += dice.random() * 30
        name, group = f"e{number}", f"g{attempt}-{number // 3}"
        if number % 3 == 0:
            say("orchestrator", 0, ev.GroupChanged(id=group, state="opened", task=f"task-{number % 2}", size=3))
        evaluation = dice.random() < 0.1
        for n in (1, 2)[: dice.choice((1, 1, 2))]:
            later = (n - 1) * dice.random() * 60 + 0.001 * n
            known = {"task": f"task-{number % 2}", "group": group, "eval": evaluation}
            say("orchestrator", later, ev.EpisodeQueued(id=name, n=n, **known))
            if dice.random() < 0.9:
                _live(dice, say, name, n, later)
        if number % 3 == 2:
            say("orchestrator", 40, ev.GroupChanged(id=group, state="trained", step=step))
            reward = dice.random()
            say("trainer", 41, ev.StepDone(step=step, reward=reward, loss=dice.gauss(0, 1), seconds=5.0, total=20))
            say("trainer", 41.5, ev.MetricRow(step=step, values={"kl": dice.random()}))
            step += 1
        if number == episodes // 2:
            t += 200
            attempt, step = 2, max(0, step - 2)
            say("supervisor", 0, ev.RunChanged(state="running", resumed_from=step - 1))
        if dice.random() < 0.2:
            say("supervisor", 0, ev.AlarmChanged(key=f"a{number % 2}", state=dice.choice(("raised", "cleared"))))
    t += 300
    say("supervisor", 0, ev.RunChanged(state="finished"))
    return sorted(told, key=lambda each: each[1].t)


def _live(dice: random.Random, say, id: str, n: int, later: float) -> None:  # type: ignore[no-untyped-def]
    later += dice.random() * 5
    say("rollouts-0", later, ev.EpisodeStarted(id=id, n=n, worker="rollouts-0", trial=f"{id}__{n}"))
    for phase in ("environment", "agent"):
        later += dice.random() * 5
        say("rollouts-0", later, ev.EpisodePhase(id=id, n=n, phase=phase))
    for turn in range(1, dice.randint(1, 4)):
        later += dice.random() * 5
        tokens = {"prompt_tokens": 100 * turn, "completion_tokens": dice.randint(1, 50)}
        say("rollouts-0", later, ev.EpisodeTurn(id=id, n=n, turn=turn, context=0.1 * turn, **tokens))
    if dice.random() < 0.3:
        held = dice.random() * 10
        say("rollouts-0", later + 0.1, ev.EpisodeHeld(id=id, n=n, held=True))
        later += held + 0.1
        if dice.random() < 0.8:
            say("rollouts-0", later, ev.EpisodeHeld(id=id, n=n, held=False, seconds=held))
    if dice.random() < 0.85:
        later += dice.random() * 20
        cause = dice.choice(ev.CAUSES)
        reward = dice.choice((None, 0.0, 0.25, 1.0))
        end = {"turns": 3, "prompt_tokens": 300, "completion_tokens": 70, "seconds": later}
        say("rollouts-0", later, ev.EpisodeFinished(id=id, n=n, cause=cause, reward=reward, **end))
