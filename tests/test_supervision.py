"""Runs of real processes under a real supervisor: launched, killed, adopted, paused, ended."""

import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from harness import end, events, in_state, left_over, log, pid_of, prepare, running, state, until

from harbortui.runs import desired
from harbortui.runs.events import (
    AlarmChanged,
    CheckpointChanged,
    EpisodeFinished,
    EpisodeStarted,
    EpisodeTurn,
    OperatorAction,
    ProcessChanged,
    Resources,
    RunChanged,
    StepDone,
)
from harbortui.runs.layout import Run, create, runs_folder
from harbortui.supervisor import client, ledger, plan, procfs, secrets
from harbortui.supervisor.lock import holder, supervised
from harbortui.supervisor.plan import Dependency, Plan, Probe, ProcessSpec, Restart, Stop


def a_run(*specs: ProcessSpec, name: str = "custom", **more: object) -> Run:
    whole = Plan(name=name, backend="demo", processes=list(specs), **more)  # type: ignore[arg-type]
    run = create(runs_folder() / name, {"run.toml": "", "plan.json": plan.encode(whole).decode()})
    secrets.store(run, secrets.make())
    return run


def shell(name: str, script: str, **more: object) -> ProcessSpec:
    return ProcessSpec(name=name, role="server", command=["bash", "-c", script], **more)  # type: ignore[arg-type]


def states(run: Run) -> list[str]:
    found = [e.state for e in events(run, "supervisor", RunChanged)]
    return [s for i, s in enumerate(found) if i == 0 or found[i - 1] != s]


def lives_of(run: Run, process: str) -> list[ProcessChanged]:
    return [e for e in events(run, "supervisor", ProcessChanged) if e.process == process]


def test_a_run_comes_up_works_and_ends_with_nothing_left(tmp_path: Path) -> None:
    with running(tmp_path, "run.budget.steps=3") as run:
        assert in_state(run, "finished", "failed") == "finished"
        until(lambda: not supervised(run), "the supervisor leaves")
        assert states(run) == ["preparing", "running", "stopping", "finished"]
        assert [e.step for e in events(run, "orchestrator", StepDone)] == [1, 2, 3]
        assert all(e.demo for e in events(run, "orchestrator", StepDone))
        assert left_over(run) == []
        assert not (run.control.is_symlink() or run.pid.exists())


def test_what_is_waited_for_stands_before_what_waits_starts(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    run = a_run(
        shell("late", "exec sleep 100", depends_on=[Dependency(process="early")]),
        shell("after", "exec sleep 100", depends_on=[Dependency(process="setup", until="exited")]),
        shell("setup", f"sleep 0.3; touch {flag}.setup"),
        shell("early", f"sleep 0.4; touch {flag}; exec sleep 100", ready=Probe(kind="file", target=str(flag))),
    )
    client.launch(run)
    try:
        in_state(run, "running")
        started = {e.process: e.t for e in events(run, "supervisor", ProcessChanged) if e.state == "running"}
        ready = next(e.t for e in lives_of(run, "early") if e.state == "ready")
        assert started["late"] > ready
        assert started["after"] > next(e.t for e in lives_of(run, "setup") if e.state == "exited")
        reasons = [e.reason for e in lives_of(run, "late") if e.state == "waiting"]
        assert reasons == ["for early to be ready"]
    finally:
        end(run)


class Health(BaseHTTPRequestHandler):
    code = 503

    def do_GET(self) -> None:
        self.send_response(type(self).code)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def health() -> HTTPServer:
    server = HTTPServer(("127.0.0.1", 0), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_every_kind_of_probe_tells_readiness(tmp_path: Path, health: HTTPServer) -> None:
    sock = Path(os.environ["HARBORTUI_RUNTIME"]) / "probe.sock"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(sock))
    listening.listen()
    Health.code = 200
    url = f"http://127.0.0.1:{health.server_address[1]}/health"
    run = a_run(
        shell("by-http", "exec sleep 100", ready=Probe(kind="http", target=url)),
        shell("by-unix", "exec sleep 100", ready=Probe(kind="unix", target=str(sock))),
        shell(
            "by-log", "echo; echo now serving on 80; exec sleep 100", ready=Probe(kind="log", target="serving on \\d+")
        ),
        shell("by-file", f"touch {tmp_path}/f; exec sleep 100", ready=Probe(kind="file", target=f"{tmp_path}/f")),
        shell("by-command", "exec sleep 100", ready=Probe(kind="command", command=["true"])),
    )
    client.launch(run)
    try:
        in_state(run, "running")
        assert all(entry.state == "ready" for entry in ledger.read(run).processes.values())
    finally:
        end(run)
        listening.close()
        health.shutdown()


def test_a_process_that_is_not_ready_in_time_ends_the_run_with_the_probes_reason(health: HTTPServer) -> None:
    Health.code = 503
    url = f"http://127.0.0.1:{health.server_address[1]}/"
    probe = Probe(kind="http", target=url, deadline=0.3)
    run = a_run(shell("s", "exec sleep 100", ready=probe, restart=Restart(backoff=0.01, budget=2)))
    client.launch(run)
    try:
        in_state(run, "failed")
        last = events(run, "supervisor", RunChanged)[-1]
        assert last.reason == (
            "s: 2 failures in a row without progress, the last: "
            f"not ready after 0.3 s: {url} answered 503 (killed by SIGTERM)"
        )
    finally:
        end(run)
        health.shutdown()


def test_a_process_that_fails_its_liveness_probe_is_started_again(tmp_path: Path) -> None:
    live = Probe(kind="file", target=str(tmp_path / "alive"), interval=0.05, failures=2)
    (tmp_path / "alive").touch()
    run = a_run(shell("s", "exec sleep 100", live=live, restart=Restart(backoff=0.01, budget=50)))
    client.launch(run)
    try:
        in_state(run, "running")
        (tmp_path / "alive").unlink()
        until(lambda: [e for e in lives_of(run, "s") if e.state == "backoff"], "a restart")
        (tmp_path / "alive").touch()
        first = next(e for e in lives_of(run, "s") if e.state == "backoff")
        assert first.reason.startswith(
            f"failed its liveness probe 2 times: {tmp_path}/alive is not there (killed by SIGTERM)"
        )
    finally:
        end(run)


def test_a_crash_loop_stops_the_run_and_says_why(tmp_path: Path) -> None:
    fault = 'demo.faults=[{process="rollouts-0", after=0.0, do="exit", amount=9}]'
    with running(tmp_path, fault) as run:
        assert in_state(run, "failed", "finished") == "failed"
        until(lambda: not supervised(run), "the supervisor leaves")
        reason = "rollouts-0: 3 failures in a row without progress, the last: exited with 9"
        assert events(run, "supervisor", RunChanged)[-1].reason.startswith(reason)
        assert left_over(run) == []


def test_the_last_words_of_a_dead_process_are_in_the_event() -> None:
    run = a_run(
        shell(
            "s",
            "for i in $(seq 80); do echo line $i; done; printf '\\033[31mred\\033[0m'; exit 4",
            restart=Restart(policy="never"),
        )
    )
    client.launch(run)
    in_state(run, "failed")
    died = next(e for e in lives_of(run, "s") if e.code == 4)
    assert len(died.tail) == 50
    assert died.tail[-1].endswith(" red")
    assert "line 80" in died.tail[-2]


def test_a_killed_child_is_told_and_starts_again_without_using_up_its_budget(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        for _ in range(4):
            pid = until(lambda: pid_of(run, "rollouts-0"), "rollouts-0 is up")
            os.kill(pid, signal.SIGKILL)
            until(
                lambda pid=pid: [e for e in lives_of(run, "rollouts-0") if e.pid == pid and e.signal == 9], "its death"
            )
        until(lambda: pid_of(run, "rollouts-0"), "rollouts-0 is up")
        assert state(run) == "running"
        assert ledger.read(run).processes["rollouts-0"].restarts == 4
        dead = [e for e in lives_of(run, "rollouts-0") if e.signal == 9]
        assert all(e.died is not None and 0 <= e.t - e.died < 1 for e in dead)


def test_a_child_that_ignores_sigterm_is_killed_at_its_deadline(tmp_path: Path) -> None:
    fault = 'demo.faults=[{process="trainer", after=0.0, do="ignore-sigterm"}]'
    with running(tmp_path, fault, "supervision.stop_seconds=1.0") as run:
        until(lambda: "ignore-sigterm" in log(run, "trainer"), "the fault")
        with client.connect(run) as speaker:
            assert speaker.ask("stop").ok
        in_state(run, "finished")
        until(lambda: not supervised(run), "the supervisor leaves")
        assert lives_of(run, "trainer")[-1].reason == "killed by SIGKILL"
        assert left_over(run) == []


def test_grandchildren_that_left_their_session_do_not_outlive_the_run(tmp_path: Path) -> None:
    fault = 'demo.faults=[{process="rollouts-1", after=0.0, do="fork", amount=3}]'
    with running(tmp_path, fault, "supervision.stop_seconds=1.0") as run:
        owner = ledger.read(run).owner
        until(lambda: len(procfs.marked(f"{owner}:rollouts-1:")) == 4, "child and three grandchildren")
        with client.connect(run) as speaker:
            speaker.ask("stop")
        in_state(run, "finished")
        until(lambda: not supervised(run), "the supervisor leaves")
        assert left_over(run) == []
        assert [e for e in events(run, "supervisor", AlarmChanged) if e.key == "strays"] == []


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
        assert child.wait(30) == 0
        assert state(run) == "finished"
        assert events(run, "supervisor", RunChanged)[-1].reason.startswith("interrupted; step_")
        assert left_over(run) == []
    finally:
        child.kill()
        end(run)


def test_a_death_that_means_hold_pauses_the_run_until_an_operator_speaks() -> None:
    run = a_run(
        shell("s", "exec sleep 100"),
        shell("w", "exit 1", restart=Restart(policy="never"), on_death="hold"),
    )
    client.launch(run)
    try:
        in_state(run, "holding")
        assert events(run, "supervisor", RunChanged)[-1].reason == "w: exited with 1"
        assert desired.read(run).pause == "dispatch"
        assert pid_of(run, "s")
        with client.connect(run) as speaker:
            speaker.ask("resume")
        in_state(run, "running")
    finally:
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
            ]
        assert refusals == [
            "set: 'demo.rat' cannot change while the run goes on; did you mean 'demo.rate'?",
            "set: demo.rate: found 'fast', allowed: a number above 0 to 100000",
            "restart: no process 'rollouts-9'; there are indexer, server, orchestrator, trainer, rollouts-0, rollouts-1",
            "pause: level 'deep'; allowed: dispatch, generate",
            "no verb 'pawse'; did you mean 'pause'?",
            "resume: the run is running, nothing is paused or held",
            "stop: --drain and --now exclude each other",
        ]
        told = [e for e in events(run, "supervisor", OperatorAction) if e.state == "refused"]
        assert [e.answer for e in told] == refusals


def test_secrets_reach_the_processes_and_no_file_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_API_KEY", "sk-very-secret-4711")
    run = a_run(
        shell("s", "echo the key is $WORKER_API_KEY; echo $HARBORTUI_TOKEN; exec sleep 100", secrets=["WORKER_API_KEY"])
    )
    client.launch(run)
    try:
        until(lambda: log(run, "s").count("[redacted]") == 2, "the log")
        token = secrets.recover(run, plan.load(run.plan.read_bytes())).token
        end(run)
        for path in run.path.rglob("*"):
            if path.is_file():
                assert b"sk-very-secret-4711" not in path.read_bytes(), path
                assert token.encode() not in path.read_bytes(), path
        assert (run.runtime / "secrets.json").stat().st_mode & 0o777 == 0o600
    finally:
        end(run)


def test_a_restart_without_its_secrets_is_refused_and_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_API_KEY", "sk-very-secret-4711")
    run = a_run(shell("s", "exec sleep 100", secrets=["WORKER_API_KEY"]))
    (run.runtime / "secrets.json").unlink()
    monkeypatch.delenv("WORKER_API_KEY")
    with pytest.raises(client.LaunchFailed) as refusal:
        client.launch(run)
    assert str(refusal.value) == "missing from the environment and .env: WORKER_API_KEY; set them and try again"


def test_a_launch_is_refused_while_a_port_is_held() -> None:
    with socket.socket() as holder_of_port:
        holder_of_port.bind(("127.0.0.1", 0))
        holder_of_port.listen()
        port = holder_of_port.getsockname()[1]
        run = a_run(shell("s", "exec sleep 100", ports=[port]))
        with pytest.raises(client.LaunchFailed, match=f"processes\\[0\\].ports\\[0\\]: {port} is in use"):
            client.launch(run)
    assert not run.ledger.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a second user")
def test_another_users_connection_is_refused_whatever_the_permissions(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        in_state(run, "running")
        sock = run.runtime / "control.sock"
        for part in (sock, *list(sock.parents)[:3]):
            part.chmod(0o777)
        script = (
            "import os, socket; os.setuid(65534); s = socket.socket(socket.AF_UNIX); "
            f"s.connect({str(sock)!r}); print(s.makefile().readline())"
        )
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20).stdout
        assert '"ok":false' in said
        assert "this run belongs to root; nobody may look at it, not control it" in said
        assert '"supervisor":{}' in said
        assert state(run) == "running"


def test_resources_are_sampled_for_every_process_and_the_host(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        samples = until(lambda: events(run, "supervisor", Resources), "a first sample")
        host = next(e for e in samples if e.process == "")
        assert host.disk_free and host.memory_free
        until(
            lambda: {e.process for e in events(run, "supervisor", Resources)} >= {"server", "indexer"}, "all processes"
        )


def test_the_end_of_a_run_is_told_to_a_command_and_a_webhook(tmp_path: Path) -> None:
    posted: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    hook = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    told = tmp_path / "told"
    run = a_run(
        shell("s", "exit 0", completes=True, stop=Stop()),
        notify=plan.Notify(
            command=["bash", "-c", f"cat > {told}"], webhook=f"http://127.0.0.1:{hook.server_address[1]}/"
        ),
    )
    client.launch(run)
    in_state(run, "finished")
    until(lambda: told.exists() and told.read_text() and posted, "both are told")
    assert '"state":"finished"' in told.read_text()
    assert b"custom: finished (s is done)" in posted[0]
    hook.shutdown()


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
        assert events(run, "supervisor", RunChanged)[-1].reason.startswith("suspended by root; ")


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
            until(lambda: [e for e in events(run, None, EpisodeStarted) if (e.id, e.n) == (second, 2)], "it starts anew")
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
