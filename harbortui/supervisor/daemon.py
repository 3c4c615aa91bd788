"""The daemon: one supervisor as a process of its own, started by `launch`, by any verb, or by `harbortui supervise`.

    python -m harbortui.supervisor.daemon RUN_DIR --mode start|resume|adopt [--report FD] [--foreground]

Guarantees: at most one supervisor has a run (a lock that dies with it). The launcher hears `ok` only when the launch
record (lock, pid file, control socket, first event) exists, and otherwise the reason, with nothing left behind.
SIGTERM suspends. SIGINT once drains and checkpoints, twice stops at once (only with --foreground; a detached daemon
has no terminal). SIGHUP is ignored.

On failure: whatever goes wrong inside after the launch is in logs/supervisor.log, and the children live on until
the next supervisor.
"""

import argparse
import asyncio
import contextlib
import os
import resource
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from harbortui.runs.events import ENDED
from harbortui.runs.layout import LayoutError, Run, private, write_whole
from harbortui.supervisor import ledger as ledgers
from harbortui.supervisor import plan as plans
from harbortui.supervisor import procfs, secrets
from harbortui.supervisor.commands import Commands
from harbortui.supervisor.control import ControlServer
from harbortui.supervisor.lock import Refused, take_lock
from harbortui.supervisor.supervisor import Supervisor

EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130


def prepare(run: Run, ledger: ledgers.Ledger, mode: str) -> tuple[plans.Plan, secrets.Secrets, ledgers.Ledger]:
    """Everything that can be refused before a process is started."""
    living = ledger.living()
    if mode == "adopt":
        if not ledger.owner or ledger.state in ENDED:
            state = ledger.state if ledger.owner else "not launched"
            raise Refused(f"{run.name} is {state}; `harbortui run --resume {run.name}` goes on with it")
        if not ledger.here():
            raise Refused(
                f"{run.name} was launched on {ledger.host} before its last boot or on another machine; "
                f"its processes are gone: `harbortui run --resume {run.name}`"
            )
    elif ledger.owner and ledger.state not in ENDED and ledger.host != socket.gethostname():
        raise Refused(f"{run.name} is {ledger.state} on {ledger.host}; stop it there")
    elif living:
        raise Refused(
            f"{run.name} still has living processes ({', '.join(living)}); "
            f"`harbortui supervise {run.name}` takes them over, `harbortui clean {run.name}` ends them"
        )
    elif strays := procfs.marked(f"{ledger.owner or ledgers.owner_of(run)}:"):
        pids = ", ".join(str(stray.pid) for stray in strays)
        raise Refused(f"processes of {run.name} are still alive ({pids}); `harbortui clean {run.name}` ends them")
    if mode == "start" and ledger.owner:
        raise Refused(f"{run.name} was launched before; `harbortui run --resume {run.name}` goes on with it")
    try:
        plan = plans.load(run.plan.read_bytes(), ports=mode != "adopt")
    except OSError as error:
        raise Refused(f"{run.plan}: {error.strerror}") from None
    except plans.PlanError as error:
        raise Refused(f"{run.plan}: {error}") from None
    try:
        known = secrets.recover(run, plan)
    except secrets.SecretsMissing as error:
        raise Refused(str(error)) from None
    if names := secrets.missing(plan, known.environment):
        raise Refused(secrets.lacking(names))
    if mode != "adopt":
        ledger = ledgers.new(run, ledger.attempt + 1 if mode == "resume" and ledger.owner else 1)
        for stale in (private(run.runtime) / "keep").glob("*"):
            stale.unlink(missing_ok=True)
    return plan, known, ledger


async def supervise(run: Run, mode: str, foreground: bool, report: "Report") -> int:
    ledger = ledgers.read(run)
    if mode == "adopt" and ledger.here() and ledger.runtime:
        run = Run(run.path, Path(ledger.runtime))
    plan, known, ledger = prepare(run, ledger, mode)
    _raise_limits()
    supervisor = Supervisor(run, plan, known, ledger)
    if mode == "resume":
        supervisor.wish(pause="", since=0.0, checkpoint="", episodes=[])
    control = ControlServer(run, Commands(supervisor).handle, supervisor.status)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: supervisor.ending.begin("suspended", "the supervisor got SIGTERM"))
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    interrupts = Interrupts(supervisor)
    if foreground:
        loop.add_signal_handler(signal.SIGINT, interrupts)
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # a full disk; the lock is what counts
        write_whole(run.pid, f"{os.getpid()} {ledger.host}\n".encode())
    await control.open()
    supervisor.background(control.keep_open())
    await supervisor.begin(adopt=mode == "adopt")
    report.ok({"pid": os.getpid(), "attempt": ledger.attempt, "run": str(run.path)})
    await supervisor.ending.told.wait()
    await control.close()
    await supervisor.close()
    run.pid.unlink(missing_ok=True)
    shutil.rmtree(run.runtime, ignore_errors=True)  # sockets and secrets; a resume brings its own
    if interrupts.count:
        return EXIT_INTERRUPTED
    return 0 if supervisor.state in ("finished", "suspended") else 1


class Interrupts:
    """SIGINT once: drain, checkpoint, end. Twice: at once."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor, self.count = supervisor, 0

    def __call__(self) -> None:
        self.count += 1
        self.supervisor.ending.begin("finished", "interrupted", drain=self.count == 1, now=self.count > 1)


class Report:
    """One line to the launcher: `ok {...}` or `no REASON`."""

    def __init__(self, fd: int | None) -> None:
        self.fd = fd

    def ok(self, record: dict[str, object]) -> None:
        self._say(b"ok " + msgspec.json.encode(record))

    def no(self, reason: str) -> None:
        self._say(b"no " + reason.encode())

    def _say(self, line: bytes) -> None:
        if self.fd is not None:
            try:
                os.write(self.fd, line)
            except OSError:
                pass
            os.close(self.fd)
            self.fd = None


def _settle(run: Run) -> None:
    """Be a daemon: no terminal, no folder, a log for what Python itself has to say."""
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(run.log("supervisor"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _raise_limits() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else soft, hard))


def _wait_for_children(seconds: float) -> None:
    """In the foreground a child may still be printing the last lines."""
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.02)
    except ChildProcessError:
        pass


def main(arguments: list[str] | None = None) -> NoReturn:
    parser = argparse.ArgumentParser(prog="harbortui.supervisor.daemon")
    parser.add_argument("run", type=Path)
    parser.add_argument("--mode", choices=("start", "resume", "adopt"), default="adopt")
    parser.add_argument("--report", type=int)
    parser.add_argument("--foreground", action="store_true")
    options = parser.parse_args(arguments)
    run, report = Run(options.run.absolute()), Report(options.report)
    if not options.foreground and os.fork():
        os._exit(0)
    try:
        lock = take_lock(run)
        if not options.foreground:
            _settle(run)
        code = asyncio.run(supervise(run, options.mode, options.foreground, report))
        os.close(lock)
        if options.foreground:
            _wait_for_children(1.0)
    except (Refused, LayoutError) as error:
        report.no(str(error))
        if options.report is None:
            print(error, file=sys.stderr)
        code = EXIT_REFUSED
    except OSError as error:
        report.no(f"{error.filename or run.path}: {error.strerror}")
        code = 1
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
