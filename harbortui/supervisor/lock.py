"""The lock of a run: at most one supervisor has it, and it dies with its holder.

Guarantees: the kernel holds the lock, not a file's content, so that no crash leaves a stale one.

On failure: `Refused` names the pid that holds it.
"""

import fcntl
import os
import pwd
import time

from harbortui.runs.layout import Run

LOOKERS = 0.5
"""Seconds in which somebody who only looks (`supervised`) is gone again."""


class Refused(Exception):
    """The run cannot be supervised, in a sentence."""


def take_lock(run: Run) -> int:
    """The lock as an open descriptor; it goes with the process that holds it."""
    fd = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    end = time.monotonic() + LOOKERS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(fd)
                raise Refused(f"{run.name} has a supervisor already (pid {holder(run) or '?'})") from None
        time.sleep(0.01)


def holder(run: Run) -> int:
    try:
        return int(run.pid.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def supervised(run: Run) -> bool:
    """Whether somebody holds the run's lock right now."""
    try:
        fd = os.open(run.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
