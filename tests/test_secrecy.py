"""Secrets stay off the disk and out of the logs, and other users stay out of the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import (
    a_run,
    end,
    in_state,
    log,
    running,
    shell,
    state,
    until,
)

from harbortui.supervisor import client, plan, secrets


def test_secrets_reach_the_processes_and_no_file_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_API_KEY", "sk-very-secret-4711")
    run = a_run(
        shell("s", "echo the key is $WORKER_API_KEY; echo $HARBORTUI_TOKEN; exec sleep 100", secrets=["WORKER_API_KEY"])
    )
    client.launch(run)
    try:
        until(lambda: log(run, "s").count("[redacted]") == 2, "the log")
        assert (run.runtime / "secrets.json").stat().st_mode & 0o777 == 0o600
        token = secrets.recover(run, plan.load(run.plan.read_bytes())).token
        end(run)
        for path in run.path.rglob("*"):
            if path.is_file():
                assert b"sk-very-secret-4711" not in path.read_bytes(), path
                assert token.encode() not in path.read_bytes(), path
        assert not run.runtime.exists(), "secrets outlive the run"
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
