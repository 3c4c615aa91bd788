"""A seeded storm of SIGKILLs over the demo plan: children, keepers and supervisors at random moments.

What must hold at the end: no acknowledged event is lost, nothing of the run is left on the host, and the index that
was kept through it all equals one that is built anew from the journals. 40 kills here, 200 in `make proof`.
"""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from harness import end, events, in_state, left_over, prepare, state, until

from harbortui.runs.events import Note, ProcessChanged, RunChanged, StepDone
from harbortui.runs.index.content import digest
from harbortui.runs.layout import Run
from harbortui.runs.reading import open_queries, rebuild
from harbortui.supervisor import client, ledger, procfs
from harbortui.supervisor.lock import holder, supervised

SETTINGS = (
    "supervision.failures=1000",
    "demo.rate=800.0",
    "rollouts.group_size=4",
    "rollouts.groups_per_step=2",
    "checkpoints.every=2",
    "supervision.stop_seconds=3.0",
)


def strike(run: Run, chance: random.Random) -> tuple[str, int]:
    """Kill one process of the run that lives now; its name, and the pid of the child that dies of it."""
    entries = ledger.read(run).processes
    up = [(name, e) for name, e in sorted(entries.items()) if procfs.alive(e.pid, e.start)]
    targets = [(name, e.pid, e.start, e.pid) for name, e in up]
    targets += [(f"keeper of {name}", e.keeper, e.keeper_start, e.pid) for name, e in up if chance.random() < 0.15]
    targets += [("supervisor", holder(run), 0, 0)] * 2 if supervised(run) else []
    if not targets:
        return "", 0
    name, pid, start, child = chance.choice(targets)
    if name == "supervisor":
        os.kill(pid, signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        return name, 0
    return (name, child) if procfs.kill(pid, start) else ("", 0)


def storm(run: Run, kills: int, seed: int) -> tuple[Counter[str], set[int], int]:
    """What was struck how often, the pids of the children that died of it, and how many notes were taken."""
    chance = random.Random(seed)
    struck: Counter[str] = Counter()
    dead: set[int] = set()
    said = 0
    while struck.total() < kills:
        time.sleep(chance.uniform(0.0, 0.4))  # the moment is what is being tried
        name, child = strike(run, chance)
        if name:
            struck[name] += 1
            dead |= {child} - {0}
        if chance.random() < 0.5 or not supervised(run):
            with client.connect(run) as speaker:
                assert speaker.ask("note", text=f"note {said}").ok
                said += 1
    return struck, dead, said


def acknowledged(witness: Path) -> dict[str, int]:
    return {path.name: int(path.read_text() or 0) for path in witness.iterdir()}


@pytest.mark.timeout(900)
def test_a_storm_of_kills_loses_nothing_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proof: bool
) -> None:
    witness = tmp_path / "witness"
    witness.mkdir()
    monkeypatch.setenv("HARBORTUI_DEMO_WITNESS", str(witness))
    run = prepare(tmp_path, *SETTINGS)
    client.launch(run)
    try:
        in_state(run, "running")
        struck, dead, said = storm(run, 200 if proof else 40, seed=7)
        with client.connect(run) as speaker:
            speaker.ask("note", text="the storm is over")
        steps = len(events(run, "orchestrator", StepDone))
        until(lambda: len(events(run, "orchestrator", StepDone)) > steps, "the run goes on", 60)
        with client.connect(run) as speaker:
            assert speaker.ask("stop").ok
        in_state(run, "finished", "failed", seconds=60)
        until(lambda: not supervised(run), "the supervisor leaves")
    finally:
        end(run)
    assert state(run) == "finished", events(run, "supervisor", RunChanged)[-1]
    assert left_over(run) == []
    _nothing_acknowledged_is_lost(run, witness, said)
    told = {e.pid for e in events(run, "supervisor", ProcessChanged) if e.signal == signal.SIGKILL}
    assert dead <= told, "a death that nobody told"
    _the_index_equals_a_rebuild(run)
    assert struck.total() >= 40
    print(dict(struck))


def _nothing_acknowledged_is_lost(run: Run, witness: Path, notes: int) -> None:
    for name, count in acknowledged(witness).items():
        lines = (run.journals / name).read_bytes().split(b"\n")[:-1]
        assert len(lines) >= count, f"{name}: {count} were acknowledged, {len(lines)} are there"
    texts = {note.text for note in events(run, "supervisor", Note)}
    assert texts >= {f"note {i}" for i in range(notes)}


def _the_index_equals_a_rebuild(run: Run) -> None:
    with open_queries(run) as queries, queries.snapshot() as connection:
        kept = digest(connection)
    rebuild(run)
    with open_queries(run) as queries, queries.snapshot() as connection:
        assert digest(connection) == kept
