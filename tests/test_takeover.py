"""Supervisors killed between a promise and its keeping, and folders that go: the next one keeps what was promised."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from harness import a_run, end, events, in_state, left_over, lives_of, log, pid_of, running, shell, state, until

from harbortui.runs.events import CheckpointChanged, EpisodeTurn, OperatorAction, RunChanged
from harbortui.runs.layout import Run
from harbortui.supervisor import client, ledger, procfs
from harbortui.supervisor.lock import holder, supervised
from harbortui.supervisor.plan import Restart, Stop


def kill_supervisor(run: Run) -> None:
    os.kill(holder(run), signal.SIGKILL)
    until(lambda: not supervised(run), "the lock is free")


def test_adoption_from_a_shell_with_another_runtime_folder_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        before = {name: pid_of(run, name) for name in ledger.read(run).processes}
        kill_supervisor(run)
        with monkeypatch.context() as elsewhere:
            (tmp_path / "other").mkdir()
            elsewhere.setenv("HARBORTUI_RUNTIME", str(tmp_path / "other"))
            client.connect(run).close()
        assert {name: pid_of(run, name) for name in before} == before


def test_a_runtime_folder_that_vanished_is_made_again_and_nobody_dies(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        before = {name: pid_of(run, name) for name in ("trainer", "rollouts-0", "indexer")}
        shutil.rmtree(run.runtime)
        until((run.runtime / "control.sock").exists, "the control socket is back")
        with client.connect(run) as speaker:
            assert speaker.ask("ping").ok
        until((run.runtime / "secrets.json").exists, "the secrets are back")
        kill_supervisor(run)
        client.connect(run).close()
        assert {name: pid_of(run, name) for name in before} == before


def test_a_sigterm_from_outside_is_no_good_end(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        for name in ("trainer", "orchestrator"):
            pid = until(lambda name=name: pid_of(run, name), f"{name} is up")
            os.kill(pid, signal.SIGTERM)
            until(lambda name=name, pid=pid: pid_of(run, name) not in (0, pid), f"{name} is back")
        assert state(run) == "running"


def test_a_process_that_goes_away_with_0_is_started_again() -> None:
    run = a_run(shell("s", "exit 0", restart=Restart(backoff=0.01)), shell("other", "exec sleep 100"))
    client.launch(run)
    in_state(run, "failed")
    reason = "s: 3 failures in a row without progress, the last: exited with 0 though the run goes on"
    assert events(run, "supervisor", RunChanged)[-1].reason == reason


def test_a_process_that_crashes_at_once_ends_the_run_though_a_signal_killed_it() -> None:
    run = a_run(shell("s", "kill -SEGV $$", restart=Restart(backoff=0.01)), shell("other", "exec sleep 100"))
    client.launch(run)
    in_state(run, "failed")
    reason = "s: 3 failures in a row without progress, the last: killed by SIGSEGV"
    assert events(run, "supervisor", RunChanged)[-1].reason == reason


def test_pauses_grow_while_deaths_are_quick_even_when_they_are_forgiven(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    ready = {"kind": "file", "target": str(flag)}
    run = a_run(shell("s", "sleep 0.1; kill -9 $$", restart=Restart(backoff=0.1), ready=_probe(ready)))
    client.launch(run)
    try:
        told = until(lambda: [e for e in lives_of(run, "s") if e.state == "backoff"][2:], "three deaths")
        assert told[0].reason == "killed by SIGKILL; starts again in 0.4 s"
    finally:
        end(run)


def _probe(fields: dict[str, str]) -> object:
    from harbortui.supervisor.plan import Probe

    return Probe(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", ["stop", "suspend"])
def test_an_end_that_was_promised_is_kept_by_the_next_supervisor(tmp_path: Path, verb: str) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        pid = holder(run)
        with client.connect(run) as speaker:
            assert speaker.ask(verb).ok
            os.kill(pid, signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        client.connect(run).close()
        assert in_state(run, "finished", "suspended", "failed") == {"stop": "finished", "suspend": "suspended"}[verb]
        assert [e for e in events(run, "orchestrator", CheckpointChanged) if e.state == "whole"]
        until(lambda: not supervised(run), "the supervisor leaves")
        assert left_over(run) == []


def test_a_restart_that_was_asked_for_is_carried_out_by_the_next_supervisor() -> None:
    run = a_run(shell("a", "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"), shell("b", "exec sleep 100"))
    client.launch(run)
    try:
        in_state(run, "running")
        before = pid_of(run, "a")
        with client.connect(run) as speaker:
            assert speaker.ask("restart", process="a").ok
        kill_supervisor(run)
        client.connect(run).close()
        until(lambda: pid_of(run, "a") not in (0, before), "a new a")
        assert state(run) == "running"
    finally:
        end(run)


def test_a_resume_that_the_supervisor_did_not_survive_is_told_by_the_next(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        with client.connect(run) as speaker:
            speaker.ask("pause", level="generate")
        in_state(run, "paused")
        pid = holder(run)
        with client.connect(run) as speaker:
            speaker.ask("resume")
            os.kill(pid, signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        client.connect(run).close()
        in_state(run, "running")


def test_wishes_that_vanish_keep_holding(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        with client.connect(run) as speaker:
            speaker.ask("pause", level="generate")
        in_state(run, "paused")
        run.desired.unlink()
        turns, at = len(events(run, None, EpisodeTurn)), time.time()
        until(lambda: any(e.t > at + 0.5 for e in events(run, "server")), "time passes")
        assert len(events(run, None, EpisodeTurn)) == turns


def test_a_keeper_that_does_not_answer_does_not_hold_up_the_end() -> None:
    run = a_run(shell("a", "exec sleep 100", stop=Stop(deadline=0.2)))
    client.launch(run)
    try:
        in_state(run, "running")
        os.kill(ledger.read(run).processes["a"].keeper, signal.SIGSTOP)
        with client.connect(run) as speaker:
            speaker.ask("stop", now=True)
        in_state(run, "finished")
    finally:
        end(run)


def test_every_request_for_a_checkpoint_is_answered(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        with client.connect(run) as speaker:
            asked = [speaker.ask("checkpoint").request for _ in range(5)]
        until(
            lambda: {e.request for e in events(run, "supervisor", OperatorAction) if e.state == "true"} >= set(asked),
            "all have come true",
        )


def test_a_failure_stays_a_failure_whoever_asks_for_another_end() -> None:
    slow = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"
    run = a_run(shell("a", "sleep 0.5; exit 3", restart=Restart(policy="on-failure", budget=1)), shell("b", slow))
    client.launch(run)
    in_state(run, "stopping")
    with client.connect(run) as speaker:
        speaker.ask("stop", now=True)
    assert in_state(run, "finished", "failed") == "failed"
    assert "exited with 3" in events(run, "supervisor", RunChanged)[-1].reason


def test_a_process_that_failed_for_good_can_be_started_again() -> None:
    flag = Path(os.environ["HARBORTUI_RUNTIME"]) / "flag"
    script = f"[ -e {flag} ] || exit 1; exec sleep 100"
    run = a_run(shell("s", "exec sleep 100"), shell("w", script, restart=Restart(policy="never"), on_death="hold"))
    client.launch(run)
    try:
        in_state(run, "holding")
        flag.touch()
        with client.connect(run) as speaker:
            assert speaker.ask("restart", process="w").answer == "w is being ended and starts again"
            until(lambda: pid_of(run, "w"), "w is up")
            speaker.ask("resume")
            in_state(run, "running")
        kill_supervisor(run)
        client.connect(run).close()
        assert state(run) == "running"
    finally:
        end(run)


def test_a_run_directory_that_vanishes_ends_quiet_processes_too() -> None:
    run = a_run(shell("a", "exec sleep 100"), shell("b", "exec sleep 100"))
    client.launch(run)
    in_state(run, "running")
    entries = list(ledger.read(run).processes.values())
    shutil.rmtree(run.path)
    until(lambda: not any(procfs.alive(e.pid, e.start) for e in entries), "both have ended")
    until(lambda: left_over(run) == [], "everything has gone")


def test_a_child_is_stopped_in_its_first_moment_too(tmp_path: Path) -> None:
    run = a_run(shell("a", "exec sleep 300", stop=Stop(deadline=20.0)))
    client.launch(run)
    with client.connect(run) as speaker:
        speaker.ask("stop")
    began = time.monotonic()
    in_state(run, "finished")
    assert time.monotonic() - began < 10
    assert [e.state for e in lives_of(run, "a")][-1] == "exited"
    assert log(run, "a") == ""


def test_a_run_whose_processes_all_wait_for_their_restart_is_not_lost() -> None:
    run = a_run(shell("a", "exec sleep 100", restart=Restart(backoff=1.0)))
    client.launch(run)
    try:
        in_state(run, "running")
        before = pid_of(run, "a")
        os.kill(before, signal.SIGKILL)
        until(lambda: ledger.read(run).processes["a"].state == "backoff", "it waits for its restart")
        kill_supervisor(run)
        client.connect(run).close()
        until(lambda: pid_of(run, "a") not in (0, before), "a new a")
    finally:
        end(run)
