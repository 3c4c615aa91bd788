"""Verbs on real runs: what was promised becomes true, and what cannot be is refused in a sentence."""

import os
import signal
import subprocess
from pathlib import Path

from harness import (
    end,
    events,
    in_state,
    left_over,
    log,
    pid_of,
    prepare,
    running,
    state,
    until,
)

from harbortui.runs import desired
from harbortui.runs.events import (
    CheckpointChanged,
    EpisodeFinished,
    EpisodeStarted,
    EpisodeTurn,
    OperatorAction,
    RunChanged,
    StepDone,
)
from harbortui.supervisor import client
from harbortui.supervisor.lock import holder, supervised, user_name


def test_after_pause_no_episode_starts_and_what_runs_finishes(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        until(lambda: events(run, None, EpisodeTurn), "episodes run")
        with client.connect(run) as speaker:
            assert "running ones finish" in speaker.ask("pause").answer
            in_state(run, "paused")
            paused = events(run, "supervisor", RunChanged)[-1]
            assert (paused.state, paused.level, paused.reason) == ("paused", "dispatch", "no episode is running")
            os.kill(pid_of(run, "rollouts-0"), signal.SIGKILL)
            os.kill(pid_of(run, "orchestrator"), signal.SIGKILL)
            until(lambda: pid_of(run, "orchestrator") and pid_of(run, "rollouts-0"), "both are back")
            at = max(e.t for e in events(run))
            until(lambda: max(e.t for e in events(run)) > at + 0.3, "time passes")
            assert [e for e in events(run, None, EpisodeStarted) if e.t > paused.t] == []
            assert speaker.ask("resume").answer == "going on"
            in_state(run, "running")
        until(lambda: [e for e in events(run, None, EpisodeStarted) if e.t > paused.t], "episodes start again")


def test_a_pause_that_waits_says_for_whom_and_one_that_is_overtaken_says_so(tmp_path: Path) -> None:
    stuck = 'demo.faults=[{process="rollouts-1", after=0.0, do="stop-journal"}]'
    with running(tmp_path, stuck) as run:
        until(lambda: "stop-journal" in log(run, "rollouts-1"), "the fault")
        with client.connect(run) as speaker:
            asked = speaker.ask("pause")
            reason = f"asked by {user_name(os.getuid())}; waits for rollouts-1 to obey"
            until(lambda: events(run, "supervisor", RunChanged)[-1].reason == reason, "the reason")
            speaker.ask("resume")
        told = {(e.request, e.state): e.answer for e in events(run, "supervisor", OperatorAction)}
        assert told[asked.request, "failed"] == "overtaken by resume"


def test_pause_generate_holds_every_turn_and_survives_the_supervisor(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        until(lambda: events(run, None, EpisodeTurn), "episodes run")
        with client.connect(run) as speaker:
            speaker.ask("pause", level="generate")
        in_state(run, "paused")
        paused = events(run, "supervisor", RunChanged)[-1]
        os.kill(holder(run), signal.SIGKILL)
        until(lambda: not supervised(run), "the lock is free")
        with client.connect(run) as speaker:
            assert speaker.ask("ping").supervisor["state"] == "paused"
            turns = [e for e in events(run, None, EpisodeTurn) if e.t > paused.t]
            assert turns == []
            speaker.ask("resume")
        in_state(run, "running")
        until(lambda: [e for e in events(run, None, EpisodeTurn) if e.t > paused.t], "turns go on")


def test_a_checkpoint_that_is_said_to_be_whole_is_on_disk(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        with client.connect(run) as speaker:
            answer = speaker.ask("checkpoint")
        told = until(
            lambda: [
                e
                for e in events(run, "supervisor", OperatorAction)
                if e.request == answer.request and e.state == "true"
            ],
            "the checkpoint has come true",
        )
        whole = next(
            e
            for e in events(run, "orchestrator", CheckpointChanged)
            if e.request == answer.request and e.state == "whole"
        )
        assert (run.path / whole.path / "manifest.json").is_file()
        assert told[0].answer == f"{whole.id} is whole"


def test_suspend_frees_everything_and_resume_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        until(lambda: len(events(run, "orchestrator", StepDone)) >= 2, "two steps")
        with client.connect(run) as speaker:
            speaker.ask("suspend")
        in_state(run, "suspended")
        until(lambda: not supervised(run), "the supervisor leaves")
        assert left_over(run) == []
        done = events(run, "orchestrator", StepDone)[-1].step
        client.launch(run, "resume")
        in_state(run, "running")
        until(lambda: [e for e in events(run, "orchestrator", StepDone) if e.attempt == 2], "a step of attempt 2")
        steps = [(e.attempt, e.step) for e in events(run, "orchestrator", StepDone)]
        assert next(step for attempt, step in steps if attempt == 2) == done + 1


def test_sigterm_to_the_supervisor_suspends(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        os.kill(holder(run), signal.SIGTERM)
        in_state(run, "suspended")
        until(lambda: not supervised(run), "the supervisor leaves")
        assert left_over(run) == []


def test_in_the_foreground_the_first_interrupt_drains_and_checkpoints(tmp_path: Path) -> None:
    run = prepare(tmp_path)
    command = [*client.daemon_command(run, "start"), "--foreground"]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        in_state(run, "running")
        until(lambda: events(run, None, EpisodeTurn), "episodes run")
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
        assert state(run) == "finished"
        assert events(run, "supervisor", RunChanged)[-1].reason.startswith("interrupted; step_")
        assert left_over(run) == []
    finally:
        child.kill()
        end(run)


def test_what_was_set_reaches_the_processes_and_what_cannot_be_set_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        with client.connect(run) as speaker:
            answer = speaker.ask("set", key="demo.rate", value="77")
            assert answer.answer == "demo.rate becomes 77.0"
            until(
                lambda: [
                    e
                    for e in events(run, "supervisor", OperatorAction)
                    if e.request == answer.request and e.state == "true"
                ],
                "every steered process has obeyed",
            )
            assert desired.read(run).settings == {"demo.rate": 77.0}
            refusals = [
                speaker.ask("set", key="demo.rat", value="1").answer,
                speaker.ask("set", key="demo.rate", value="fast").answer,
                speaker.ask("restart", process="rollouts-9").answer,
                speaker.ask("pause", level="deep").answer,
                speaker.ask("pawse").answer,
                speaker.ask("resume").answer,
                speaker.ask("stop", drain=True, now=True).answer,
                speaker.ask("episode", action="cancel", id="nope").answer,
            ]
        assert refusals == [
            "set: 'demo.rat' cannot change while the run goes on; did you mean 'demo.rate'?",
            "set: demo.rate: found 'fast', allowed: a number above 0 to 100000",
            (
                "restart: no process 'rollouts-9'; "
                "there are indexer, server, orchestrator, trainer, rollouts-0, rollouts-1"
            ),
            "pause: level 'deep'; allowed: dispatch, generate",
            "no verb 'pawse'; did you mean 'pause'?",
            "resume: the run is running, nothing is paused or held",
            "stop: --drain and --now exclude each other",
            "episode: no episode 'nope'; `harbortui events --kind episode.started` lists them",
        ]
        told = [e for e in events(run, "supervisor", OperatorAction) if e.state == "refused"]
        assert [e.answer for e in told] == refusals


def test_an_episode_is_cancelled_or_put_back_once_and_nobody_else_is_touched(tmp_path: Path) -> None:
    with running(tmp_path, "demo.rate=40.0") as run:
        in_state(run, "running")

        def live() -> list[str]:
            done = {e.id for e in events(run, None, EpisodeFinished)}
            return [e.id for e in events(run, None, EpisodeStarted) if e.id not in done]

        until(lambda: len(live()) >= 2, "episodes run")
        with client.connect(run) as speaker:
            first, second = live()[-2:]
            speaker.ask("episode", action="cancel", id=first)
            until(lambda: [e for e in events(run, None, EpisodeFinished) if e.id == first], "it ends")
            speaker.ask("episode", action="requeue", id=second)
            until(lambda: (second, 2) in {(e.id, e.n) for e in events(run, None, EpisodeStarted)}, "it starts anew")
            answer = speaker.ask("set", key="demo.rate", value="41")
            until(
                lambda: [e for e in events(run, "supervisor", OperatorAction) if e.request == answer.request][1:],
                "another wish is obeyed",
            )
        cancelled = [(e.id, e.n, e.error) for e in events(run, None, EpisodeFinished) if e.cause == "cancelled"]
        assert cancelled == [
            (first, 1, "cancel asked by the operator"),
            (second, 1, "requeue asked by the operator"),
        ]
