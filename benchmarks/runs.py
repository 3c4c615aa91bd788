"""Figures of the run directory: append, ingest while readers ask, and every question of the screens.

`python -m benchmarks.runs [--episodes N]` prints them; the targets are for 100 000 episodes (two million events).
"""

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event as Signal
from pathlib import Path

from benchmarks import synthetic
from benchmarks.figure import Figure, percentile
from harbortui.runs.events import EpisodeTurn
from harbortui.runs.index.place import Lock, place_of
from harbortui.runs.index.writer import Index
from harbortui.runs.journal import Journal
from harbortui.runs.layout import Run
from harbortui.runs.queries import EpisodeFilter, IndexUnusable, Queries
from harbortui.runs.queries.finding import SORTS
from harbortui.runs.reading import open_queries, rebuild

EPISODES = 100_000
QUICK = 5000
READERS = 2


def figures(quick: bool = False, episodes: int = EPISODES, folder: Path | None = None) -> list[Figure]:
    """All figures, on a synthetic run that is made in `folder` (the system's temporary one) and removed."""
    episodes = min(episodes, QUICK) if quick else episodes
    base = Path(tempfile.mkdtemp(prefix="harbortui-bench-", dir=folder))
    try:
        rows = appending(base / "append")
        events = synthetic.write(base / "run", episodes, begin=time.time() - episodes)
        run = Run(base / "run")
        rows += ingesting(run, events)
        rows += rebuilding(run, events)
        return rows + asking(run)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def appending(folder: Path, count: int = 200_000) -> list[Figure]:
    (folder / "journal").mkdir(parents=True)
    with Journal.open(Run(folder), "rollouts-0", "rollouts", 1) as journal:
        begun = time.perf_counter()
        for turn in range(count):
            journal.append(
                EpisodeTurn(
                    id="e0000123",
                    turn=turn,
                    prompt_tokens=1000,
                    completion_tokens=300,
                    context=0.3,
                    commands=["pytest -q tests/test_outputs.py"],
                    policy=4,
                    seconds=3.2,
                )
            )
        return [Figure("append", count / (time.perf_counter() - begun), "events/s", ">=", 100_000)]


def ingesting(run: Run, events: int) -> list[Figure]:
    """Into an index that two other processes read at the same time, as two screens would, without a pause."""
    context = multiprocessing.get_context("spawn")
    stop, counts = context.Event(), context.Queue()
    readers = [context.Process(target=_ask_on, args=(str(run.path), stop, counts)) for _ in range(READERS)]
    place = place_of(run)
    with Lock(place) as lock, Index(run, place) as index:
        lock.take()
        index.open()
        for reader in readers:
            reader.start()
        for _ in readers:
            counts.get(timeout=60)
        begun = time.perf_counter()
        index.catch_up()
        seconds = time.perf_counter() - begun
    stop.set()
    asked = [counts.get(timeout=60) for _ in readers]
    for reader in readers:
        reader.join()
    slowest = max(slow for _, slow in asked)
    return [
        Figure("ingest while readers ask", events / seconds, "events/s", ">=", 30_000),
        Figure("whole screens read meanwhile", sum(count for count, _ in asked) / seconds, "per s"),
        Figure("a whole screen meanwhile, p99", slowest, "ms"),
        Figure("index size", place.index.stat().st_size / max(1, events), "bytes/event"),
    ]


def _ask_on(path: str, stop: Signal, counts: "multiprocessing.Queue[object]") -> None:
    """What a Mission screen asks, four times as often as it would: every 60 ms."""
    took = []
    with Queries(Run(Path(path)).index) as queries:
        queries.last_moment()
        counts.put("ready")
        while not stop.is_set():
            begun = time.perf_counter()
            try:
                queries.mission()
                queries.live_episodes()
                queries.episodes()
            except IndexUnusable as error:
                print(error, file=sys.stderr)
            took.append(1000 * (time.perf_counter() - begun))
            stop.wait(0.06)
    counts.put((len(took), _p99(took)))


def rebuilding(run: Run, events: int) -> list[Figure]:
    begun = time.perf_counter()
    rebuild(run)
    rows = [Figure("rebuild", events / (time.perf_counter() - begun), "events/s")]
    begun = time.perf_counter()
    open_queries(run).close()
    return [*rows, Figure("open a dead run", 1000 * (time.perf_counter() - begun), "ms")]


def asking(run: Run, times: int = 200) -> list[Figure]:
    with open_queries(run) as queries:
        end = queries.last_moment()
        run_row = queries.run()
        begin = run_row.started if run_row else end
        moments = [begin + (end - begin) * i / times for i in range(times)]
        rows = [
            Figure(name, _ask(lambda i, ask=ask: ask(queries, i), times), "ms p99", "<=", 20)
            for name, ask in _now(begin, end).items()
        ]
        rows += [
            Figure(f"{name}, past", _ask(lambda i, ask=ask: ask(queries, moments[i]), times), "ms p99", "<=", 150)
            for name, ask in _then().items()
        ]
        return rows


Ask = Callable[[Queries, int], object]
AskAt = Callable[[Queries, float], object]


def _now(begin: float, end: float) -> dict[str, Ask]:
    asks: dict[str, Ask] = {
        "run": lambda q, i: q.run(),
        "processes": lambda q, i: q.processes(),
        "mission": lambda q, i: q.mission(),
        "live_episodes": lambda q, i: q.live_episodes(),
        "running": lambda q, i: q.running(),
        "rates": lambda q, i: q.rates(),
        "steps": lambda q, i: q.steps(),
        "metric_names": lambda q, i: q.metric_names(),
        "series": lambda q, i: q.series(("loss", "reward", "optim/value_3")[i % 3]),
        "episode": lambda q, i: q.episode(f"e{i * 7:07d}"),
        "groups": lambda q, i: q.groups(),
        "groups of a step": lambda q, i: q.groups(step=i + 1),
        "tasks": lambda q, i: q.tasks(),
        "task_heatmap": lambda q, i: q.task_heatmap(),
        "checkpoints": lambda q, i: q.checkpoints(),
        "alarms": lambda q, i: q.alarms(),
        "alarm_history": lambda q, i: q.alarm_history(),
        "actions": lambda q, i: q.actions(),
        "timeline of an hour": lambda q, i: q.timeline(end - 3600 - i, end - i),
        "resources of half an hour": lambda q, i: q.resources("trainer", end - 1800 - i, end - i),
        "resources of the whole run": lambda q, i: q.resources("", begin, end),
        "phase_medians": lambda q, i: q.phase_medians(),
        "disk": lambda q, i: q.disk(),
        "defects": lambda q, i: q.defects(),
    }
    for name, wanted in FILTERS.items():
        asks[f"episodes, {name}"] = lambda q, i, wanted=wanted: q.episodes(
            wanted(i), list(SORTS)[i % len(SORTS)], descending=i % 2 == 0
        )
        asks[f"episode_count, {name}"] = lambda q, i, wanted=wanted: q.episode_count(wanted(i))
    asks["episodes, tenth page"] = lambda q, i: _tenth_page(q)
    return asks


def _then() -> dict[str, AskAt]:
    return {
        "mission": lambda q, at: q.mission(at),
        "live_episodes": lambda q, at: q.live_episodes(at),
        "processes": lambda q, at: q.processes(at),
        "rates": lambda q, at: q.rates(at=at),
        "steps": lambda q, at: q.steps(at=at),
        "series": lambda q, at: q.series("loss", at=at),
        "episodes": lambda q, at: q.episodes(at=at),
        "episodes by reward": lambda q, at: q.episodes(sort="reward", at=at),
        "episodes, one cause": lambda q, at: q.episodes(EpisodeFilter(cause="failed"), at=at),
        "episode_count": lambda q, at: q.episode_count(at=at),
        "episode": lambda q, at: q.episode("e0000700", at),
        "alarms": lambda q, at: q.alarms(at),
        "checkpoints": lambda q, at: q.checkpoints(at),
    }


FILTERS: dict[str, Callable[[int], EpisodeFilter | None]] = {
    "all": lambda i: None,
    "one task": lambda i: EpisodeFilter(task=f"task-{i % 200:04d}"),
    "a frequent cause": lambda i: EpisodeFilter(cause=("failed", "solved")[i % 2]),
    "a rare cause": lambda i: EpisodeFilter(cause="verifier"),
    "a cause and a worker": lambda i: EpisodeFilter(cause="environment", worker=f"rollouts-{i % 4}"),
    "a range of rewards": lambda i: EpisodeFilter(reward_low=i % 10 / 10, reward_high=i % 10 / 10 + 0.1),
    "a cause without such rewards": lambda i: EpisodeFilter(cause="solved", reward_high=0.5),
    "running": lambda i: EpisodeFilter(state="running"),
    "one step": lambda i: EpisodeFilter(step=i + 1),
}


def _tenth_page(queries: Queries) -> None:
    page = queries.episodes(sort="reward")
    for _ in range(9):
        page = queries.episodes(sort="reward", after=page.after)


def _ask(ask: Callable[[int], object], times: int) -> float:
    took = []
    for i in range(times):
        begun = time.perf_counter()
        ask(i)
        took.append(1000 * (time.perf_counter() - begun))
    return _p99(took)


def _p99(took: list[float]) -> float:
    return percentile(sorted(took), 99) if took else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.runs")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--folder", type=Path, default=None, help="where to make the run (default: the system's)")
    given = parser.parse_args()
    for figure in figures(episodes=given.episodes, folder=given.folder):
        print(figure.line())


if __name__ == "__main__":
    main()
