"""Supervisors that die, and those that take over: nothing that runs depends on any one of them."""

import os
import signal
from pathlib import Path

import pytest
from harness import (
    a_run,
    end,
    events,
    in_state,
    left_over,
    lives_of,
    log,
    pid_of,
    running,
    shell,
    until,
)

from harbortui.runs.events import (
    AlarmChanged,
    Resources,
    RunChanged,
)
from harbortui.supervisor import client, ledger, procfs
from harbortui.supervisor.lock import holder, supervised, user_name
from harbortui.supervisor.plan import Watch


def test_children_outlive_the_supervisor_and_the_next_verb_adopts_them(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        before = {name: pid_of(run, name) for name in ("server", "trainer", "orchestrator", "rollouts-0", "indexer")}
        os.kill(holder(run), signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        journal = run.journal("rollouts-0", before["rollouts-0"], 1)
        until(journal.exists, "the worker has a journal")
        size = journal.stat().st_size
        until(lambda: journal.stat().st_size > size, "the worker goes on")
        with client.connect(run) as speaker:
            answer = speaker.ask("ping")
        assert (answer.ok, answer.supervisor["attempt"], answer.supervisor["state"]) == (True, 1, "running")
        assert {name: pid_of(run, name) for name in before} == before


def test_what_died_while_nobody_watched_is_told_and_started_again(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        worker = pid_of(run, "rollouts-0")
        os.kill(holder(run), signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        os.kill(worker, signal.SIGKILL)
        client.connect(run).close()
        until(lambda: pid_of(run, "rollouts-0") not in (0, worker), "a new worker")
        assert [e.pid for e in lives_of(run, "rollouts-0") if e.signal == 9] == [worker]


def test_a_supervisor_killed_while_it_stops_the_run_leaves_an_end_to_the_next(tmp_path: Path) -> None:
    fault = 'demo.faults=[{process="trainer", after=0.0, do="ignore-sigterm"}]'
    with running(tmp_path, fault, "supervision.stop_seconds=30.0") as run:
        until(lambda: "ignore-sigterm" in log(run, "trainer"), "the fault")
        with client.connect(run) as speaker:
            speaker.ask("stop", now=True)
        in_state(run, "stopping")
        os.kill(holder(run), signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        client.connect(run).close()
        in_state(run, "failed", "finished")
        until(lambda: not supervised(run), "the supervisor leaves")
        assert left_over(run) == []


def test_a_killed_keeper_takes_its_child_along_and_both_come_back(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        entry = ledger.read(run).processes["rollouts-0"]
        os.kill(entry.keeper, signal.SIGKILL)
        until(lambda: pid_of(run, "rollouts-0") not in (0, entry.pid), "a new worker")
        assert not procfs.alive(entry.pid, entry.start)


def test_an_alarm_that_stands_is_raised_once_whoever_watches(tmp_path: Path) -> None:
    run = a_run(shell("s", "exec sleep 100"), watch=Watch(memory_percent=0.01, sample=0.1))
    client.launch(run)
    try:
        raised = until(lambda: events(run, "supervisor", AlarmChanged), "the alarm")
        os.kill(holder(run), signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        client.connect(run).close()
        seen = len(events(run, "supervisor", Resources))
        until(lambda: len(events(run, "supervisor", Resources)) > seen + 4, "the new supervisor looks around twice")
        assert [(e.key, e.state) for e in events(run, "supervisor", AlarmChanged)] == [(raised[0].key, "raised")]
    finally:
        end(run)


def test_a_second_supervisor_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        with pytest.raises(client.LaunchFailed, match=f"demo has a supervisor already \\(pid {holder(run)}\\)"):
            client.launch(run, "adopt")


def test_a_run_that_was_launched_is_not_launched_again(tmp_path: Path) -> None:
    with running(tmp_path, "run.budget.steps=1") as run:
        in_state(run, "finished")
        until(lambda: not supervised(run), "the supervisor leaves")
        with pytest.raises(
            client.LaunchFailed, match="demo was launched before; `harbortui run --resume demo` goes on"
        ):
            client.launch(run)
        with pytest.raises(
            client.NotControllable, match="demo is finished; `harbortui run --resume demo` goes on with it"
        ):
            client.connect(run)


def test_a_suspend_that_the_supervisor_did_not_survive_is_carried_out_by_the_next(tmp_path: Path) -> None:
    fault = 'demo.faults=[{process="trainer", after=0.0, do="ignore-sigterm"}]'
    with running(tmp_path, fault, "supervision.stop_seconds=2.0") as run:
        until(lambda: "ignore-sigterm" in log(run, "trainer"), "the fault")
        with client.connect(run) as speaker:
            speaker.ask("suspend")
        in_state(run, "stopping")
        os.kill(holder(run), signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        client.connect(run).close()
        assert in_state(run, "failed", "finished", "suspended") == "suspended"
        assert events(run, "supervisor", RunChanged)[-1].reason.startswith(f"suspended by {user_name(os.getuid())}")


def test_a_run_whose_processes_are_all_gone_is_lost_and_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        known = ledger.read(run)
        os.kill(holder(run), signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        for entry in known.processes.values():
            procfs.kill(entry.keeper, entry.keeper_start)
        until(lambda: not known.living(), "all are gone")
        sentence = "demo is lost: its processes are gone; `harbortui run --resume demo` goes on with it"
        with pytest.raises(client.NotControllable, match=sentence):
            client.connect(run)
        client.launch(run, "resume")
        in_state(run, "running")
        assert ledger.read(run).attempt == 2


def test_strays_of_a_run_that_lost_everybody_are_killed_when_it_is_adopted() -> None:
    run = a_run(shell("a", "(setsid sleep 500 &); exec sleep 500"), shell("b", "exec sleep 500"))
    client.launch(run)
    try:
        in_state(run, "running")
        known = ledger.read(run)
        until(lambda: len(procfs.marked(f"{known.owner}:a:")) == 2, "child and stray")
        os.kill(holder(run), signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        procfs.kill(known.processes["a"].keeper, known.processes["a"].keeper_start)
        until(lambda: not procfs.alive(known.processes["a"].pid, known.processes["a"].start), "a is dead")
        (stray,) = procfs.marked(f"{known.owner}:a:")
        client.connect(run).close()
        until(lambda: not procfs.alive(stray.pid, stray.start), "the stray is dead")
        until(lambda: pid_of(run, "a"), "a is back")
    finally:
        end(run)
