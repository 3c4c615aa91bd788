"""Runs of real processes: brought up in order, watched, started again, ended with nothing left."""

import os
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
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
    state,
    states,
    until,
)

from harbortui.runs import desired
from harbortui.runs.events import (
    AlarmChanged,
    ProcessChanged,
    Resources,
    RunChanged,
    StepDone,
)
from harbortui.supervisor import client, ledger, plan, procfs
from harbortui.supervisor.lock import supervised
from harbortui.supervisor.plan import Dependency, Probe, Restart, Stop


def test_a_run_comes_up_works_and_ends_with_nothing_left(tmp_path: Path) -> None:
    with running(tmp_path, "run.budget.steps=3") as run:
        assert in_state(run, "finished", "failed") == "finished"
        until(lambda: not supervised(run), "the supervisor leaves")
        assert states(run) == ["preparing", "running", "stopping", "finished"]
        assert [e.step for e in events(run, "orchestrator", StepDone)] == [1, 2, 3]
        assert all(e.demo for e in events(run, "orchestrator", StepDone))
        assert left_over(run) == []
        assert not (run.control.is_symlink())
        assert not (run.pid.exists())


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


def test_resources_are_sampled_for_every_process_and_the_host(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        samples = until(lambda: events(run, "supervisor", Resources), "a first sample")
        host = next(e for e in samples if e.process == "")
        assert host.disk_free
        assert host.memory_free
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


def test_a_launch_is_refused_while_a_port_is_held() -> None:
    with socket.socket() as holder_of_port:
        holder_of_port.bind(("127.0.0.1", 0))
        holder_of_port.listen()
        port = holder_of_port.getsockname()[1]
        run = a_run(shell("s", "exec sleep 100", ports=[port]))
        with pytest.raises(client.LaunchFailed, match=f"processes\\[0\\].ports\\[0\\]: {port} is in use"):
            client.launch(run)
    assert not run.ledger.exists()
