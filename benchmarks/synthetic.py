"""A run directory like a real one, of any size, written quickly: lines are put together by hand, not by a journal.

Guarantees: the same arguments give the same bytes. Times go forward, groups of eight episodes on one task, several
workers in parallel, some attempts that were tried again, one resume in the middle.
"""

import heapq
import random
from pathlib import Path

GROUP = 8
PER_STEP = 64
TURNS = 13
WORKERS = 4
CAUSES = (
    ("solved",) * 45
    + ("failed",) * 40
    + ("context",) * 5
    + ("timeout_agent",) * 5
    + ("environment",) * 4
    + ("verifier",)
)
BEGIN = 1_750_000_000.0


def write(run: Path, episodes: int = 100_000, tasks: int = 200, seed: int = 7) -> int:
    """Write the journals of a run with so many episodes (20 events each, roughly); how many events that were."""
    dice = random.Random(seed)
    folder = run / "journal"
    folder.mkdir(parents=True, exist_ok=True)
    names = ["supervisor", "orchestrator", "trainer", *(f"rollouts-{i}" for i in range(WORKERS))]
    files = {name: (folder / f"{name}-{100 + i}-1.jsonl").open("w", 1 << 20) for i, name in enumerate(names)}
    waiting: dict[str, list[tuple[float, int, str]]] = {name: [] for name in names}
    count = 0

    def say(who: str, t: float, attempt: int, kind: str, body: str) -> None:
        nonlocal count
        count += 1
        comma = "," if body else ""
        line = f'{{"kind":"{kind}","t":{t:.3f},"m":{t - BEGIN + 50:.3f},"attempt":{attempt}{comma}{body}}}\n'
        heapq.heappush(waiting[who], (t, count, line))

    def write_until(t: float) -> None:
        for name, file in files.items():
            lines = waiting[name]
            while lines and lines[0][0] < t:
                file.write(heapq.heappop(lines)[2])

    for i, name in enumerate(names):
        role = name.split("-")[0]
        say(name, BEGIN, 1, "journal", f'"process":"{name}","role":"{role}","pid":{100 + i}')
        say(
            "supervisor", BEGIN + i, 1, "process", f'"process":"{name}","role":"{role}","state":"ready","pid":{100 + i}'
        )
    say("supervisor", BEGIN, 1, "run", '"state":"running","backend":"local","name":"synthetic"')
    steps = max(1, episodes // PER_STEP)
    step_now, attempt, t = 1, 1, BEGIN + 10
    commands = ",".join(f'"pytest -q tests/test_{n}.py 2>&1 | tail -{n}"' for n in range(1, 3))
    for number in range(episodes):
        if number and number % PER_STEP == 0:
            _step(say, dice, t, attempt, step_now, steps)
            if step_now == steps // 2 and attempt == 1:
                attempt, step_now = 2, max(0, step_now - 3)
                say("supervisor", t, 2, "run", f'"state":"running","backend":"local","resumed_from":{step_now}')
            step_now += 1
        write_until(t)
        t += 0.9 + dice.random() * 0.2
        group = f"g{attempt}-{number // GROUP}"
        task = f"task-{(number // GROUP) % tasks:04d}"
        if number % GROUP == 0:
            say(
                "orchestrator",
                t,
                attempt,
                "group",
                f'"id":"{group}","state":"opened","task":"{task}","size":8,"policy":{step_now}',
            )
        for n in (1, 2) if dice.random() < 0.02 else (1,):
            name = f'"id":"e{number:07d}"' + (f',"n":{n}' if n > 1 else "")
            _episode(say, dice, t + (n - 1) * 300, attempt, name, n, task, group, step_now, number % WORKERS, commands)
        if number % GROUP == GROUP - 1:
            say("orchestrator", t + 400, attempt, "group", f'"id":"{group}","state":"trained","step":{step_now}')
    write_until(float("inf"))
    for file in files.values():
        file.close()
    return count


def _episode(say, dice, t, attempt, name, n, task, group, step, worker, commands) -> None:  # type: ignore[no-untyped-def]
    who = f"rollouts-{worker}"
    say("orchestrator", t, attempt, "episode.queued", f'{name},"task":"{task}","group":"{group}","policy":{step}')
    t += 1
    say(
        who,
        t,
        attempt,
        "episode.started",
        f'{name},"worker":"{who}","task":"{task}","trial":"{task}__{n}x","agent":"terminus-2","model":"tiny"',
    )
    say(who, t, attempt, "episode.phase", f'{name},"phase":"environment"')
    t += 4 + dice.random() * 4
    say(who, t, attempt, "episode.phase", f'{name},"phase":"agent"')
    turns = dice.randint(TURNS - 8, TURNS + 8)
    prompt = completion = 0
    for turn in range(1, turns + 1):
        t += 2 + dice.random() * 20
        prompt, answer = prompt + 700, dice.randint(80, 900)
        completion += answer
        say(
            who,
            t,
            attempt,
            "episode.turn",
            f'{name},"turn":{turn},"prompt_tokens":{prompt},"completion_tokens":{answer},"context":{prompt / 32000:.4f},"commands":[{commands}],"policy":{step},"seconds":{dice.random() * 9:.3f}',
        )
    say(who, t, attempt, "episode.phase", f'{name},"phase":"verifier"')
    t += 3 + dice.random() * 6
    cause = "environment" if n == 1 and dice.random() < 0.02 else dice.choice(CAUSES)
    reward = {"solved": "1.0", "failed": f"{dice.randint(0, 9) / 10}"}.get(cause)
    told = f',"reward":{reward}' if reward else ""
    say(
        who,
        t,
        attempt,
        "episode.finished",
        f'{name},"cause":"{cause}"{told},"turns":{turns},"prompt_tokens":{prompt},"completion_tokens":{completion},"seconds":{t % 500:.2f},"policy":{step},"path":"trials/{task}__{n}x"',
    )


def _step(say, dice, t, attempt, step, total) -> None:  # type: ignore[no-untyped-def]
    solved = min(0.95, 0.2 + step / total * 0.6 + dice.random() * 0.1)
    say(
        "trainer",
        t,
        attempt,
        "step",
        f'"step":{step},"policy":{step},"reward":{solved:.4f},"honest_reward":{solved + 0.01:.4f},"solve_rate":{solved:.4f},"loss":{dice.gauss(0, 0.1):.5f},"entropy":{dice.random():.4f},"grad_norm":{dice.random():.4f},"tokens":400000,"seconds":55.0,"episodes":64,"left_out":{{"environment":2}},"total":{total}',
    )
    values = ",".join(f'"optim/value_{i}":{dice.random():.5f}' for i in range(20))
    say("trainer", t, attempt, "metrics", f'"step":{step},"values":{{{values}}}')
    say("orchestrator", t + 1, attempt, "policy", f'"policy":{step},"step":{step}')
    for doing, on in (("training", ""), ("publishing", ""), ("waiting", "rollouts-0")):
        say("trainer", t + dice.random(), attempt, "activity", f'"doing":"{doing}","on":"{on}"')
    for process in ("", "trainer", *(f"rollouts-{i}" for i in range(WORKERS))):
        for k in range(4):
            extra = (
                ',"disk_free":80000000000,"disk_used":20000000000,"memory_free":9000000,"load":1.5'
                if not process
                else ""
            )
            say(
                "supervisor",
                t + 15 * k,
                attempt,
                "resources",
                f'"process":"{process}","cpu":{dice.random():.3f},"rss":{dice.randint(10**8, 10**9)}{extra}',
            )
    if step % 10 == 0:
        for state in ("writing", "whole"):
            say(
                "trainer",
                t,
                attempt,
                "checkpoint",
                f'"id":"step_{step:06d}","state":"{state}","step":{step},"bytes":1000000',
            )
    if step % 25 == 0:
        say("supervisor", t, attempt, "alarm", f'"key":"slow-{step % 3}","state":"raised","text":"slow"')
        say("supervisor", t + 30, attempt, "alarm", f'"key":"slow-{step % 3}","state":"cleared"')
        say("supervisor", t, attempt, "operator", f'"verb":"note","state":"accepted","request":"r{step}"')
