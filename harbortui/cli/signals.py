"""Signals and keys for a face that follows a run.

Guarantees: while it is entered, SIGINT, SIGTERM and SIGHUP are counted instead of ending the process, and `wait` comes
back at once when one arrives or a key is pressed. Keys are heard without Enter, also after a stop (Ctrl-Z) and `fg`; in
the background the terminal is left alone. The terminal and the handlers are as before when it is left.
"""

import os
import select
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Self

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    def __init__(self, keys: bool = False) -> None:
        self.count = dict.fromkeys(WATCHED, 0)
        self.pressed: list[str] = []
        self._keys = keys and sys.stdin.isatty() and _in_front()
        self._before: dict[signal.Signals, Any] = {}
        self._terminal: list[Any] | None = None
        self._listening = False
        self._read = self._write = -1

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        for number in WATCHED:
            self._before[number] = signal.signal(number, self._heard)
        if self._keys:
            import termios

            self._terminal = termios.tcgetattr(sys.stdin)
            self._before[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._continued)
            self._listen()
        return self

    def _listen(self) -> bool:
        """Keys without Enter, while this process is in front."""
        front = _in_front()
        if front and not self._listening:
            import termios
            import tty

            tty.setcbreak(sys.stdin, termios.TCSADRAIN)
        self._listening = front
        return front

    def _continued(self, number: int, frame: FrameType | None) -> None:
        self._listening = False
        self._wake()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._terminal is not None and _in_front():
            import termios

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._terminal)
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self._read)
        os.close(self._write)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.count[signal.Signals(number)] += 1
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._write, b"!")
        except OSError:
            pass

    def mute(self) -> None:
        """Hear nothing any more."""
        for number in WATCHED:
            signal.signal(number, signal.SIG_IGN)

    def wait(self, seconds: float) -> None:
        """Until a signal, a key or the end of the time."""
        keys = self._keys and self._listen()
        watched = [self._read, sys.stdin.fileno()] if keys else [self._read]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._read in ready:
            os.read(self._read, 1024)
        if keys and sys.stdin.fileno() in ready:
            data = os.read(sys.stdin.fileno(), 64)
            self._keys = bool(data)
            self.pressed += list(data.decode("utf-8", "replace"))


def _in_front() -> bool:
    """Whether this process may change its terminal: one in the background would be stopped for it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False
