"""The supervisor's end of a keeper: start one, or find one that is already there.

Guarantees: `exited` is resolved within milliseconds of the child's death, from the kernel through the keeper, and also
when the keeper itself dies or when both died while no supervisor was there. `gone` is resolved when no descendant of
the child is left.

On failure: a keeper that dies takes its child with it; what had left the child's process tree is found by its mark
and killed before `gone` is resolved.
"""

import asyncio
import contextlib
import ctypes
import errno
import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harbortui.supervisor import procfs

ROOT = str(Path(__file__).parents[2])
START = "import sys; sys.path.append(sys.argv[1]); from harbortui.supervisor.keeper import main; main()"
KEEPER = (sys.executable, "-I", "-S", "-c", START, ROOT)
_prctl = ctypes.CDLL(None).prctl
SET_CHILD_SUBREAPER = 36
LONGEST = 107
REACHABLE = 15.0
STRAYS = 10.0


def become_subreaper() -> None:
    _prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap_when_dead(pid: int) -> None:
    loop = asyncio.get_running_loop()
    fd = os.pidfd_open(pid)

    def reap() -> None:
        loop.remove_reader(fd)
        os.close(fd)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)

    loop.add_reader(fd, reap)


@dataclass(frozen=True)
class Order:
    """Everything a keeper needs to know."""

    command: list[str]
    env: dict[str, str]
    cwd: str
    log: Path
    log_bytes: int
    log_files: int
    redact: list[str]
    socket: Path
    exit: Path
    stop_deadline: float

    def spec(self) -> bytes:
        return marshal.dumps(
            {
                "command": self.command,
                "env": self.env,
                "cwd": self.cwd,
                "log": str(self.log),
                "log_bytes": self.log_bytes,
                "log_files": self.log_files,
                "redact": [text.encode() for text in self.redact],
                "socket": str(self.socket),
                "exit": str(self.exit),
                "stop_deadline": self.stop_deadline,
            }
        )


@dataclass(frozen=True)
class Ending:
    """How a child ended: `code` negative when by signal, None when nobody could tell; `lost`: its keeper went first."""

    code: int | None
    at: float
    lost: bool = False


class Kept:
    """A child under its keeper."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.keeper = self.keeper_start = 0
        self.pid = self.start = 0
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.exited: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exit_file: Path | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def spawn(cls, order: Order, mark: str, remember: Callable[["Kept"], None]) -> "Kept":
        """Start a keeper, have it remembered, and only then tell it what to start."""
        if len(os.fsencode(order.socket)) > LONGEST:
            raise OSError(errno.ENAMETOOLONG, f"the path of its socket is too long: {order.socket}")
        kept = cls(mark)
        ours, theirs = socket.socketpair()
        order.exit.unlink(missing_ok=True)
        kept._exit_file = order.exit
        # the subreaper attribute survives exec, which spares the keeper importing ctypes
        keeper = subprocess.Popen(
            [*KEEPER, str(theirs.fileno()), str(order.socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=become_subreaper,  # noqa: PLW1509 - calls nothing but prctl
            pass_fds=(theirs.fileno(),),
            env={},
            cwd="/",
        )
        theirs.close()
        kept.keeper = keeper.pid
        found = procfs.read(keeper.pid)
        kept.keeper_start = found.start if found else 0
        keeper.returncode = 0  # reaped below, not by subprocess
        _reap_when_dead(keeper.pid)
        remember(kept)
        assert keeper.stdin
        with contextlib.suppress(BrokenPipeError):
            keeper.stdin.write(order.spec())
        with contextlib.suppress(BrokenPipeError):
            keeper.stdin.close()
        await kept._attach(ours)
        return kept

    @classmethod
    async def adopt(
        cls, path: Path, exit_file: Path, mark: str, keeper: tuple[int, int], ending_counts: bool
    ) -> "Kept | None":
        """Join a living keeper; else, where it counts, take note of the end of a departed one, and of its strays.

        A keeper that lives is waited for: its socket may have been removed, and it looks for that itself.
        """
        kept = cls(mark)
        kept._exit_file = exit_file
        kept.keeper, kept.keeper_start = keeper
        end = time.monotonic() + REACHABLE
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(str(path))
                break
            except OSError:
                sock.close()
            if not procfs.alive(*keeper) or time.monotonic() > end:
                if not ending_counts:
                    return None
                kept.kill_keeper()
                kept._read_ending()
                kept._task = asyncio.create_task(kept._lost())
                return kept
            await asyncio.sleep(0.05)
        await kept._attach(sock)
        return kept

    async def _attach(self, sock: socket.socket) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=sock)
        self._task = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._hear(line.decode().split())
        except (OSError, ValueError):
            pass
        if self._writer:
            self._writer.close()
        await self._lost()

    def _hear(self, words: list[str]) -> None:
        match words:
            case ["hello", pid, start, code, at]:
                self.pid, self.start = int(pid), int(start)
                if not self.started.done():
                    self.started.set_result(None)
                if code != "-":
                    self._ended(int(code), float(at))
            case ["exit", code, at]:
                self._ended(int(code), float(at))
            case ["gone"]:
                self._say("release")
                self._all_gone()

    def _ended(self, code: int | None, at: float, lost: bool = False) -> None:
        if not self.started.done():
            self.started.set_result(None)
        if not self.exited.done():
            self.exited.set_result(Ending(code, at, lost))

    def _all_gone(self) -> None:
        self._ended(None, time.time())
        if not self.gone.done():
            self.gone.set_result(None)

    def _read_ending(self) -> bool:
        try:
            assert self._exit_file
            pid, start, code, at, _ = self._exit_file.read_text().split()
        except (OSError, ValueError):
            return False
        self.pid, self.start = int(pid), int(start)
        self._ended(int(code), float(at))
        return True

    async def _lost(self) -> None:
        """The keeper is no more. Its child dies by the kernel's hand; strays are killed by their mark."""
        if not self.gone.done():
            if not self.exited.done() and not self._read_ending():
                self._ended(-signal.SIGKILL if self.pid else None, time.time(), lost=True)
            end = time.monotonic() + STRAYS
            while (strays := procfs.marked(self.mark)) and time.monotonic() < end:
                for stray in strays:
                    procfs.kill(stray.pid, stray.start)
                await asyncio.sleep(0.02)
        self._all_gone()

    def _say(self, line: str) -> None:
        if self._writer and not self._writer.is_closing():
            self._writer.write(line.encode() + b"\n")

    def stop(self, number: int, deadline: float) -> None:
        """Signal the group; after `deadline` seconds the keeper kills all that is left."""
        self._say(f"stop {int(number)} {deadline}")

    def kill_keeper(self) -> None:
        """When it does not answer: its child dies with it."""
        procfs.kill(self.keeper, self.keeper_start)

    def detach(self) -> None:
        """Leave the child to its keeper, as the supervisor's death would."""
        if self._task:
            self._task.cancel()
        if self._writer:
            self._writer.transport.abort()
