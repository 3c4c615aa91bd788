"""The program run as a user runs it: in a folder of its own, on a pipe or on a terminal, and ended whatever happens."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harbortui.runs.layout import Run
from harbortui.supervisor import ledger, procfs
from harbortui.supervisor.lock import holder, supervised

ROOT = Path(__file__).parent.parent
DEMO = str(ROOT / "configs" / "demo.toml")
FAST = [
    "--set", "demo.rate=400.0", "--set", "demo.step_seconds=0.05", "--set", "rollouts.group_size=2",
    "--set", "rollouts.groups_per_step=2", "--set", "run.budget.steps=100000",
]  # fmt: skip


@dataclass
class Place:
    """A folder of runs and a runtime folder, and the program run in them."""

    folder: Path
    runtime: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        own = {"HARBORTUI_RUNS": str(self.folder), "HARBORTUI_RUNTIME": str(self.runtime), "TERM": "xterm"}
        return {**os.environ, **own}

    def command(self, *argv: str) -> list[str]:
        return [sys.executable, "-m", "harbortui", *argv]

    def do(self, *argv: str, code: int = 0) -> str:
        """The output of a command that ends with `code`."""
        done = self.ended(*argv)
        assert done.returncode == code, f"{argv}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 or done.stdout else done.stderr

    def ended(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*argv), cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=60)

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """A command that goes on; it is a group of its own, as a shell would make it."""
        process = subprocess.Popen(
            self.command(*argv), cwd=ROOT, env=self.env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, name: str) -> Run:
        return Run(self.folder / name)

    def state(self, name: str) -> str:
        return ledger.read(self.run(name)).state

    def until(self, condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"never within {seconds:g} s: {what}"
            time.sleep(0.02)

    def until_state(self, name: str, *states: str) -> None:
        self.until(lambda: self.state(name) in states, f"{name} is {states} (is {self.state(name)})")

    def end(self) -> None:
        """Nothing may be left, whatever a test has done."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            owner = ledger.read(Run(path)).owner
            if pid := supervisor(Run(path)):
                os.kill(pid, signal.SIGKILL)
            marked = [(proc.pid, proc.start) for proc in procfs.marked(f"{owner}:")] if owner else []
            left = [pair for pairs in ledger.read(Run(path)).living().values() for pair in pairs] + marked
            for pid, start in left:
                procfs.kill(pid, start)
            assert procfs.gone(left, 10.0)
        shutil.rmtree(self.runtime, ignore_errors=True)


def supervisor(run: Run) -> int:
    return holder(run) if supervised(run) else 0


@dataclass
class Terminal:
    """A program on a terminal of 80 columns."""

    process: subprocess.Popen[bytes]
    fd: int
    seen: bytes = b""

    def until(self, pattern: str, seconds: float = 15.0) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(pattern.encode(), self.seen):
            assert time.monotonic() < deadline, f"never seen: {pattern}\n{self.seen.decode()}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    assert re.search(pattern.encode(), self.seen), self.seen.decode()

    def press(self, key: bytes) -> None:
        os.write(self.fd, key)


def on_terminal(place: Place, *argv: str, term: str = "xterm") -> Terminal:
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    code = "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *place.command(*argv)], cwd=ROOT, env={**place.env, "TERM": term},
        stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    place.started.append(process)  # type: ignore[arg-type]
    return Terminal(process, outer)
