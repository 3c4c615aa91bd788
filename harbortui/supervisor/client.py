"""A face's way to the supervisor: launch one, find one, speak a verb.

Guarantees: `launch` returns only when the run is supervised, or raises `LaunchFailed` with the reason. `ask` speaks to
the supervisor that is there; where it has died and the run goes on under its keepers, a new one is started first and
adopts what runs.

On failure: `NotControllable` says in a sentence why nobody can obey: the run has ended, is lost, or is somebody else's.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harbortui.runs.events import ENDED
from harbortui.runs.layout import Run
from harbortui.supervisor import ledger as ledgers
from harbortui.supervisor.lock import holder, supervised, user_name
from harbortui.supervisor.verbs import PROTOCOL

PATIENCE = 30.0


class LaunchFailed(Exception):
    pass


class NotControllable(Exception):
    pass


@dataclass(frozen=True)
class Answer:
    ok: bool
    answer: str
    request: str
    supervisor: dict[str, Any]


def daemon_command(run: Run, mode: str) -> list[str]:
    return [sys.executable, "-m", "harbortui.supervisor.daemon", str(run.path), "--mode", mode]


def launch(run: Run, mode: str = "start") -> dict[str, Any]:
    """Start a detached supervisor and wait for its launch record."""
    hear, tell = os.pipe()
    os.set_inheritable(tell, True)
    with open(run.log("supervisor"), "ab") as log:
        starter = subprocess.Popen(
            [*daemon_command(run, mode), "--report", str(tell)],
            pass_fds=(tell,),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.close(tell)
    said = _hear_all(hear, PATIENCE)
    starter.wait()
    word, _, rest = said.partition(b" ")
    if word == b"ok":
        return msgspec.json.decode(rest)
    if word == b"no":
        raise LaunchFailed(rest.decode())
    raise LaunchFailed(f"the supervisor did not start; see {run.log('supervisor')}")


def _hear_all(fd: int, patience: float) -> bytes:
    said, end = b"", time.monotonic() + patience
    with contextlib.closing(os.fdopen(fd, "rb", buffering=0)) as pipe:
        while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            part = pipe.read(65536)
            if not part:
                break
            said += part
    return said


class Client:
    """A connection to the supervisor of a run."""

    def __init__(self, run: Run, sock: socket.socket) -> None:
        self.run, self._sock, self._rest = run, sock, b""

    def ask(self, verb: str, request: str = "", **arguments: Any) -> Answer:
        body = {
            "protocol": PROTOCOL,
            "verb": verb,
            "arguments": arguments,
            "request": request or uuid.uuid4().hex[:12],
            "tty": _tty(),
        }
        try:
            with contextlib.suppress(BrokenPipeError):
                self._sock.sendall(msgspec.json.encode(body) + b"\n")
            return self._read()
        except TimeoutError:
            pid = holder(self.run)
            raise NotControllable(f"the supervisor of {self.run.name} (pid {pid}) does not answer") from None
        except ConnectionError:
            raise NotControllable(f"the supervisor of {self.run.name} hung up; try again") from None

    def _read(self) -> Answer:
        while b"\n" not in self._rest:
            part = self._sock.recv(65536)
            if not part:
                raise NotControllable(f"the supervisor of {self.run.name} hung up; try again")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        said = msgspec.json.decode(line)
        return Answer(said["ok"], said["answer"], said["request"], said["supervisor"])

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(run: Run, adopt: bool = True) -> Client:
    """To the living supervisor, or (with `adopt`) to a new one that takes over what runs."""
    deadline = time.monotonic() + PATIENCE
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE)
        try:
            sock.connect(str(_socket_of(run)))
            return Client(run, sock)
        except OSError as error:
            sock.close()
            if isinstance(error, PermissionError):
                raise NotControllable(_foreign(run)) from None
        if time.monotonic() > deadline:
            raise NotControllable(f"{run.name} has a supervisor (pid {holder(run)}) that does not answer at its socket")
        if supervised(run):
            time.sleep(0.02)
            continue
        why = uncontrollable(run)
        if why or not adopt:
            raise NotControllable(why or f"{run.name} has no supervisor; `harbortui supervise {run.name}` starts one")
        try:
            launch(run, "adopt")
        except LaunchFailed as failure:
            if not supervised(run):
                raise NotControllable(str(failure)) from None


def _socket_of(run: Run) -> Path:
    """The link's target: a path through the run directory may be too long for a socket."""
    try:
        return Path(os.readlink(run.control))
    except OSError:
        return run.runtime / "control.sock"


def uncontrollable(run: Run) -> str:
    """Why no supervisor can be started for this run as it is, or ''."""
    if not run.path.is_dir():
        return f"{run.path} is gone"
    if run.path.stat().st_uid != os.getuid():
        return _foreign(run)
    ledger = ledgers.read(run)
    if not ledger.owner:
        return f"{run.name} was never launched"
    if ledger.state in ENDED:
        return f"{run.name} is {ledger.state}; `harbortui run --resume {run.name}` goes on with it"
    if ledger.host != socket.gethostname():
        return f"{run.name} runs on {ledger.host}; speak to it there"
    if not ledger.here():
        return f"{run.name} is lost: this machine was started anew; `harbortui run --resume {run.name}` goes on with it"
    if ledger.state != "stopping" and ledger.lost():
        return f"{run.name} is lost: its processes are gone; `harbortui run --resume {run.name}` goes on with it"
    return ""


def _foreign(run: Run) -> str:
    return f"{run.name} belongs to {user_name(run.path.stat().st_uid)}; you may look at it, not control it"


def _tty() -> str:
    try:
        return os.ttyname(0)
    except OSError:
        return ""
