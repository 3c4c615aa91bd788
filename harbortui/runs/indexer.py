"""The indexer process: keeps a run's index up with its journals (`python -m harbortui.runs.indexer RUN_DIR`).

Guarantees: one indexer works per index; others wait for its lock and take over when it dies. It may be killed at any
moment: the next one goes on where the last committed batch ended. It looks for new lines every 50 ms while there are
any and every 250 ms while there are none, and journals nothing itself. SIGTERM and SIGINT end it cleanly; with
`--parent PID` it ends when that process is no longer its parent; with `--once` when everything is taken in.

On failure: a full disk or a busy index is tried again every second and told on stderr, once per kind of trouble. When
the run directory goes away it ends.
"""

import argparse
import contextlib
import os
import select
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from harbortui.runs.index.place import Lock, Place, place_of
from harbortui.runs.index.writer import Index
from harbortui.runs.layout import LayoutError, Run

BUSY_SECONDS = 0.05
IDLE_SECONDS = 0.25
TROUBLE_SECONDS = 1.0
FULL_BATCH = 1 << 20


class Bell:
    """Sleep that a signal ends: a pipe that the kernel rings."""

    def __init__(self) -> None:
        self.rung = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def ring(self, *_: object) -> None:
        self.rung = True
        with contextlib.suppress(OSError):
            os.write(self._write, b"!")

    def sleep(self, seconds: float) -> None:
        if not self.rung:
            select.select([self._read], [], [], seconds)


def work(run: Run, place: Place, bell: Bell, once: bool = False, parent: int = 0) -> None:
    """Wait for the lock, then keep the index up with the journals until the bell rings."""
    with Lock(place) as lock:
        while not lock.take():
            bell.sleep(IDLE_SECONDS)
            if bell.rung or _orphaned(parent) or not run.path.is_dir():
                return
        with Index(run, place, thorough=True) as index:
            pace = _steps(run, index, once, bell)
            with contextlib.suppress(_Rung):
                while not (bell.rung or _orphaned(parent)):
                    pause = next(pace, None)
                    if pause is None:
                        return
                    if pause:
                        bell.sleep(pause)


class _Rung(Exception):
    """The bell rang in the middle of a long piece of work."""


def _steps(run: Run, index: Index, once: bool, bell: Bell) -> Iterator[float]:
    """Do one piece of work per step and say for how long to sleep after it."""
    opened, told, pause = False, "", BUSY_SECONDS

    def heed(done: int, total: int) -> None:
        if bell.rung:
            raise _Rung

    while run.path.is_dir():
        try:
            if not opened:
                index.open(heed)
                opened = True
            busy = index.poll()
            told = ""
        except (sqlite3.Error, OSError) as error:
            if str(error) != told:
                told = str(error)
                print(f"index not written: {told}; trying again", file=sys.stderr, flush=True)
            yield TROUBLE_SECONDS
            continue
        if once and not busy:
            return
        pause = BUSY_SECONDS if busy else min(IDLE_SECONDS, pause * 1.5)
        yield 0.0 if busy > FULL_BATCH or once else pause


def _orphaned(parent: int) -> bool:
    return parent > 0 and os.getppid() != parent


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="harbortui.runs.indexer", description="Keep a run's index up to date.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--once", action="store_true", help="end when everything is taken in")
    parser.add_argument("--parent", type=int, default=0, help="end when this process is no longer the parent")
    given = parser.parse_args(arguments)
    run = Run(given.run.absolute())
    if not run.path.is_dir():
        print(f"{run.path} is no directory", file=sys.stderr)
        return 2
    bell = Bell()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, bell.ring)
    try:
        work(run, place_of(run), bell, given.once, given.parent)
    except LayoutError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
