"""The ledger: what a run owns on this host. `clean` and a new supervisor trust it, and nothing else.

Guarantees: written whole at every change, before anybody is told of it. A process is named by pid and start time on
one boot of one host: `living` never returns a recycled pid, one of another boot or of another machine.

On failure: an unreadable ledger is an empty one; what runs is then still found by its mark (see `procfs.marked`) and
by the keepers' sockets in the runtime folder.
"""

import hashlib
import os
import socket
import time
from pathlib import Path

import msgspec

from harbortui.runs.layout import Run, write_whole
from harbortui.supervisor import procfs
from harbortui.supervisor.alarms import Alarm


class Entry(msgspec.Struct, omit_defaults=True):
    """One process of the plan: its keeper, its child, and what they hold."""

    keeper: int = 0
    keeper_start: int = 0
    pid: int = 0
    start: int = 0
    state: str = ""
    reason: str = ""
    again: str = ""
    restarts: int = 0
    failures: int = 0
    since: float = 0.0
    was_ready: bool = False
    ports: list[int] = []
    log_from: int = 0


class Way(msgspec.Struct, omit_defaults=True):
    """How a run is being ended, for a supervisor that has to carry it on."""

    state: str
    reason: str
    checkpoint: bool = True
    drain: bool = False
    now: bool = False
    verb: str = ""
    request: str = ""
    user: str = ""


class Ledger(msgspec.Struct, omit_defaults=True):
    owner: str = ""
    host: str = ""
    boot: str = ""
    attempt: int = 1
    launched: float = 0.0
    runtime: str = ""
    state: str = "preparing"
    reason: str = ""
    level: str = ""
    sequence: int = 0
    way: Way | None = None
    processes: dict[str, Entry] = {}
    alarms: dict[str, Alarm] = {}

    def here(self) -> bool:
        return self.host == socket.gethostname() and self.boot == procfs.boot_id()

    def lost(self) -> bool:
        """Nothing of the run lives and nothing waits for its restart: a new supervisor would find nobody."""
        waiting = self.here() and any(entry.state == "backoff" for entry in self.processes.values())
        return not (waiting or self.living())

    def living(self) -> dict[str, list[tuple[int, int]]]:
        """For each process: the (pid, start) of keeper and child that are alive right now."""
        if not self.here():
            return {}
        found = {}
        for name, entry in self.processes.items():
            pairs = [(entry.keeper, entry.keeper_start), (entry.pid, entry.start)]
            alive = [(pid, start) for pid, start in pairs if pid and procfs.alive(pid, start)]
            if alive:
                found[name] = alive
        return found


def owner_of(run: Run) -> str:
    """The mark of everything that belongs to this run directory, in all its attempts; known without a ledger."""
    return hashlib.sha256(f"{os.getuid()}:{run.path.resolve()}".encode()).hexdigest()[:16]


def new(run: Run, attempt: int) -> Ledger:
    return Ledger(
        owner=owner_of(run),
        host=socket.gethostname(),
        boot=procfs.boot_id(),
        attempt=attempt,
        launched=time.time(),
        runtime=str(run.runtime),
    )


def read(run: Run) -> Ledger:
    try:
        return msgspec.json.decode(run.ledger.read_bytes(), type=Ledger)
    except (OSError, msgspec.DecodeError):
        return Ledger()


def write(run: Run, ledger: Ledger) -> None:
    write_whole(run.ledger, msgspec.json.encode(ledger))


def sockets(run: Run) -> dict[str, Path]:
    """Keepers that may be listening, by process."""
    try:
        return {path.stem: path for path in (run.runtime / "keep").iterdir() if path.suffix == ".sock"}
    except OSError:
        return {}
