"""The supervisor's figures: death noticed, verbs answered, and what it costs to watch 32 idle children."""

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, percentile
from harbortui.backends.common import indexer
from harbortui.runs.events import ProcessChanged, decode
from harbortui.runs.layout import Run, create
from harbortui.supervisor import client, ledger, plan, procfs, secrets
from harbortui.supervisor.lock import holder, supervised
from harbortui.supervisor.plan import Plan, ProcessSpec, Restart

CHILDREN = 32


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.005)
    return found


@contextmanager
def run_of(specs: list[ProcessSpec], **more: Any) -> Iterator[Run]:
    """A run of these processes and an indexer, so that the watchdog has something to ask."""
    with tempfile.TemporaryDirectory(prefix="hb-") as folder:
        os.environ["HARBORTUI_RUNTIME"] = folder
        indexing = indexer(Run(Path(folder) / "runs" / "bench"))
        whole = Plan(name="bench", backend="demo", demo=True, processes=[indexing, *specs], **more)
        run = create(Path(folder) / "runs" / "bench", {"run.toml": "", "plan.json": plan.encode(whole).decode()})
        secrets.store(run, secrets.make())
        client.launch(run)
        try:
            until(lambda: ledger.read(run).state == "running")
            yield run
        finally:
            with client.connect(run) as speaker:
                speaker.ask("stop", now=True)
            until(lambda: not supervised(run))


def sleeper(i: int, backoff: float = 0.01) -> ProcessSpec:
    return ProcessSpec(
        name=f"child-{i:02d}",
        role="rollouts",
        command=["sleep", "100000"],
        restart=Restart(backoff=backoff, backoff_max=backoff, budget=100000),
    )


def deaths(run: Run) -> dict[int, float]:
    """When the supervisor's journal says that each pid had died."""
    found = {}
    for path in run.journals.glob("supervisor-*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            event = decode(line)
            if isinstance(event, ProcessChanged) and event.signal == signal.SIGKILL:
                found.setdefault(event.pid, event.m)
    return found


def death_noticed(kills: int = 200) -> list[float]:
    """Milliseconds from kill(2) of a child to the event in the supervisor's journal, among 8 children."""
    killed: dict[int, float] = {}
    with run_of([sleeper(i) for i in range(8)]) as run:
        for k in range(kills):
            name = f"child-{k % 8:02d}"

            def alive(name: str = name) -> ledger.Entry | None:
                entry = ledger.read(run).processes.get(name)
                fresh = entry and entry.state == "running" and entry.pid not in killed
                return entry if fresh and procfs.alive(entry.pid, entry.start) else None

            entry = until(alive)
            time.sleep(0.1)  # let the start of the last one pass, as between the deaths of real runs
            killed[entry.pid] = time.monotonic()
            os.kill(entry.pid, signal.SIGKILL)
        until(lambda: len(deaths(run)) >= kills)
        told = deaths(run)
    return sorted((told[pid] - at) * 1000 for pid, at in killed.items())


def verbs_answered(asked: int = 300) -> list[float]:
    delays = []
    with run_of([sleeper(i) for i in range(8)]) as run, client.connect(run) as speaker:
        for i in range(asked):
            at = time.monotonic()
            speaker.ask("note", text=f"note {i}")
            delays.append((time.monotonic() - at) * 1000)
    return sorted(delays)


def idle(seconds: float = 30.0) -> tuple[float, float, float]:
    """Watching 32 idle children: percent of a core, MB of the supervisor, MB of the largest keeper."""
    with run_of([sleeper(i) for i in range(CHILDREN)]) as run:
        time.sleep(3)
        pid = holder(run)
        before, began = procfs.read(pid), time.monotonic()
        time.sleep(seconds)
        after, took = procfs.read(pid), time.monotonic() - began
        assert before
        assert after
        keepers = [procfs.read(entry.keeper) for entry in ledger.read(run).processes.values()]
        largest = max(keeper.rss for keeper in keepers if keeper)
    return (after.cpu - before.cpu) / took * 100, after.rss / 1e6, largest / 1e6


def figures(quick: bool = False) -> list[Figure]:
    noticed = death_noticed(40 if quick else 200)
    answered = verbs_answered(50 if quick else 300)
    core, size, keeper = idle(5 if quick else 30)
    return [
        Figure("death noticed, median", statistics.median(noticed), "ms", "<=", 10),
        Figure("death noticed, p99", percentile(noticed, 99), "ms", "<=", 50),
        Figure("verb answered, median", statistics.median(answered), "ms", "<=", 20),
        Figure("verb answered, p99", percentile(answered, 99), "ms", "<=", 20),
        Figure(f"supervisor with {CHILDREN} idle children", core, "% of a core", "<=", 1),
        Figure(f"supervisor with {CHILDREN} idle children", size, "MB", "<=", 80),
        Figure("largest keeper", keeper, "MB", "<=", 12),
    ]


if __name__ == "__main__":
    for figure in figures("--quick" in sys.argv):
        print(figure.line())
