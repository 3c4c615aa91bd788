"""`harbortui clean`: removes what a run has left on this machine, and nothing else.

Guarantees: only processes that the run's ledger names (by pid and start time), keepers that listen in the run's own
runtime folder, and processes that carry the run's mark in their environment are ended, and only the run's own folder
for sockets and secrets is removed; the run directory stays. With `--all` that goes too for runs whose directory is
gone. A run with a living supervisor is never touched, and none can start while its leftovers are removed (its lock is
held). Keepers are asked to stop first; what is still there after a deadline is killed.

On failure: what could not be removed is named, exit code 1.
"""

import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harbortui.cli.options import Json, RunArgument

if TYPE_CHECKING:
    from harbortui.runs.layout import Run
    from harbortui.supervisor.procfs import Proc

DEADLINE = 15.0


def add(app: typer.Typer) -> None:
    app.command(epilog="Example: harbortui clean --all --dry-run", rich_help_panel="Keep house")(clean)


@dataclass
class Leftovers:
    """What one run has left here. `kept` says why nothing may be removed."""

    run: "Run"
    kept: str = ""
    keepers: list[tuple[int, int]] = field(default_factory=list)
    processes: dict[int, tuple[str, int]] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.processes or self.folders)

    def json(self) -> dict[str, Any]:
        return {
            "run": self.run.name, "kept": self.kept or None, "folders": [str(path) for path in self.folders],
            "processes": [{"pid": pid, "name": name} for pid, (name, _) in sorted(self.processes.items())],
        }  # fmt: skip


def clean(
    run: RunArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All runs of the folder of runs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what runs without a supervisor have left: processes, sockets, secrets. Run directories stay."""
    from harbortui.cli import text
    from harbortui.cli.errors import Bad
    from harbortui.runs import layout

    if run is not None and everything:
        raise Bad("clean: give a RUN or --all, not both")
    runs = layout.all_runs() if everything else [layout.find(run)]
    found, failed = [], False
    for left in [look(one) for one in runs] + (vanished() if everything else []):
        one = left.run
        if not as_json:
            _tell(left, dry_run, everything)
        body = left.json() | {"removed": False, "stuck": []}
        if left and not left.kept and not dry_run:
            stuck = remove(left)
            failed |= bool(stuck)
            body |= {"removed": not stuck, "stuck": stuck}
            if not as_json:
                name = text.plain(one.name)
                print(f"{name}: still there: {', '.join(stuck)}" if stuck else f"{name}: removed")
        found.append(body)
    if as_json:
        text.say_json({"runs": found, "dry_run": dry_run})
    elif everything and not any(body["processes"] or body["folders"] or body["kept"] for body in found):
        print(f"nothing to remove ({len(runs)} runs looked at)")
    if failed:
        raise typer.Exit(1)


def _tell(left: Leftovers, dry_run: bool, everything: bool) -> None:
    from harbortui.cli import text

    name, would = text.plain(left.run.name), "would remove" if dry_run else "removing"
    if left.kept:
        print(f"{name}: not touched: {left.kept}")
    elif not left and not everything:
        print(f"{name}: nothing to remove")
    for pid, (process, _) in sorted(left.processes.items()):
        print(f"{name}: {would} process {pid} ({text.plain(process)})")
    for folder in left.folders:
        print(f"{name}: {would} {folder} (sockets and secrets)")


def look(run: "Run") -> Leftovers:
    import os

    from harbortui.supervisor import ledger as ledgers
    from harbortui.supervisor.lock import holder, supervised, user_name

    if (owner := run.path.stat().st_uid) != os.getuid():
        return Leftovers(run, f"it belongs to {user_name(owner)}")
    if supervised(run):
        pid = holder(run)
        return Leftovers(run, f"its supervisor lives (pid {pid or '?'}); `harbortui stop {run.name}` ends it")
    left = Leftovers(run)
    ledger = ledgers.read(run)
    for name, pairs in ledger.living().items():
        entry = ledger.processes[name]
        for pid, start in pairs:
            keeper = pid == entry.keeper
            left.processes[pid] = (f"{name}, its keeper" if keeper else name, start)
            if keeper:
                left.keepers.append((pid, start))
    for name, (pid, start) in _listening(run).items():
        if pid not in left.processes:
            left.processes[pid] = (f"{name}, its keeper", start)
            left.keepers.append((pid, start))
    if ledger.owner and ledger.here():
        for proc in _marked(ledger.owner):
            left.processes.setdefault(proc.pid, ("carries the run's mark", proc.start))
    for folder in dict.fromkeys((run.runtime, Path(ledger.runtime or run.runtime))):
        if _ours(folder, run):
            left.folders.append(folder)
    return left


def vanished() -> list[Leftovers]:
    """What is left of runs whose directory is gone while the folder of runs is there, as their launch named them."""
    import os

    from harbortui.runs.layout import LayoutError, Run, runtime_folder

    found = []
    try:
        names = [path for path in runtime_folder().glob("*/run") if path.lstat().st_uid == os.getuid()]
    except (LayoutError, OSError):
        return []
    for name in names:
        try:
            run = Run(Path(os.fsdecode(name.read_bytes())), name.parent)
        except OSError:
            continue
        gone = run.path.parent.is_dir() and not run.path.exists() and Run(run.path).runtime == name.parent
        if not gone or not _ours(name.parent, run) or _answers(name.parent / "control.sock"):
            continue
        left = Leftovers(run, folders=[name.parent])
        for process, (pid, start) in _listening(run).items():
            left.processes[pid] = (f"{process}, its keeper", start)
            left.keepers.append((pid, start))
        found.append(left)
    return found


def _answers(path: Path) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
    return True


def _listening(run: "Run") -> dict[str, tuple[int, int]]:
    """Keepers that answer in the run's own runtime folder, as the kernel names them: also without a ledger."""
    import os
    import socket
    import struct

    from harbortui.supervisor import ledger as ledgers
    from harbortui.supervisor import procfs

    found = {}
    for name, path in ledgers.sockets(run).items():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                sock.connect(str(path))
                pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            except OSError:
                continue
        if uid == os.getuid() and (proc := procfs.read(pid)):
            found[name] = (pid, proc.start)
    return found


def _marked(owner: str) -> "list[Proc]":
    import os

    from harbortui.supervisor import procfs

    return [proc for proc in procfs.marked(f"{owner}:") if proc.pid != os.getpid()]


def _ours(folder: Path, run: "Run") -> bool:
    """Whether this is the run's part of a runtime folder: named by the run's path, in a folder of ours."""
    import os

    try:
        found = folder.lstat()
    except OSError:
        return False
    named = folder.name == run.runtime.name and folder.parent.name.startswith("harbortui")
    return named and folder.is_dir() and not folder.is_symlink() and found.st_uid == os.getuid()


def remove(left: Leftovers) -> list[str]:
    """What could not be removed, in words."""
    import contextlib
    import os

    from harbortui.supervisor import ledger as ledgers
    from harbortui.supervisor import procfs
    from harbortui.supervisor.lock import take_lock

    lock = take_lock(left.run) if left.run.path.is_dir() else -1
    try:
        for pid, start in left.keepers:
            procfs.kill(pid, start, signal.SIGTERM)
        procfs.gone(left.keepers, DEADLINE if left.keepers else 0.0)
        owner = ledgers.read(left.run).owner
        wanted = {pid: start for pid, (_, start) in left.processes.items()}
        for _ in range(50):
            strays = {proc.pid: proc.start for proc in _marked(owner)} if owner else {}
            alive = [(pid, start) for pid, start in {**wanted, **strays}.items() if procfs.alive(pid, start)]
            if not alive:
                break
            for pid, start in alive:
                procfs.kill(pid, start, signal.SIGKILL)
            procfs.gone(alive, 0.2)
        for folder in left.folders:
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            if left.run.control.is_symlink() and not left.run.control.exists():
                left.run.control.unlink()
        stuck = [f"process {pid}" for pid, (_, start) in left.processes.items() if procfs.alive(pid, start)]
        return stuck + [str(folder) for folder in left.folders if folder.exists()]
    finally:
        if lock >= 0:
            os.close(lock)
