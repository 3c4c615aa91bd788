"""Opening a run for reading: finds its index, brings it up to date where nobody else does, hands back its queries.

Guarantees: an opener never waits for a live indexer. When the index's lock is free (a dead run, a foreign one, a
read-only one, or an indexer that is just being started again) the opener takes it, takes in what is new, telling
`progress(done, total)` in bytes, and frees it before it returns. Where that cannot be written (a full disk) an index
that is there is read as it is. `follow` keeps such an index going: an indexer of the opener's own, which ends with it.

On failure: `IndexUnusable` or `NoPlace`, one sentence with the remedy.
"""

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from harbortui.runs.index.place import Lock, Place, place_of
from harbortui.runs.layout import Run
from harbortui.runs.queries import IndexUnusable, Queries

if TYPE_CHECKING:
    import subprocess

Progress = Callable[[int, int], None]

WAIT_SECONDS = 10.0
LOOK_SECONDS = 0.02


def open_queries(run: Run, progress: Progress | None = None, wait: float = WAIT_SECONDS) -> Queries:
    """The run's questions. Waits up to `wait` seconds for an index that an indexer at work has not yet made."""
    place = place_of(run)
    deadline = time.monotonic() + wait
    while True:
        caught_up = _catch_up(run, place, progress)
        queries = Queries(place.index)
        try:
            queries.last_moment()
            return queries
        except IndexUnusable:
            queries.close()
            if caught_up or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)


def _catch_up(run: Run, place: Place, progress: Progress | None) -> bool:
    """Take in what is new, when nobody else has that right."""
    with Lock(place) as lock:
        try:
            if not lock.take():
                return False
            from harbortui.runs.index.writer import Index

            with Index(run, place) as index:
                index.open(progress)
                index.catch_up(progress)
        except (sqlite3.Error, OSError) as error:
            if place.index.exists():
                return True
            raise IndexUnusable(f"the index of {run.path} cannot be written in {place.folder}: {error}") from error
        return True


def follow(run: Run) -> "subprocess.Popen[bytes] | None":
    """Start an indexer that lives as long as this process; None when one is at work already."""
    import subprocess

    with Lock(place_of(run)) as lock:
        if not lock.take():
            return None
    return subprocess.Popen(
        [sys.executable, "-m", "harbortui.runs.indexer", str(run.path), "--parent", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def rebuild(run: Run, progress: Progress | None = None, wait: float = 600.0) -> None:
    """Build the index anew from the journals; where an indexer is at work it is asked to, and waited for."""
    place = place_of(run)
    with Lock(place) as lock:
        if lock.take():
            from harbortui.runs.index.writer import Index

            with Index(run, place) as index:
                index.rebuild("it was asked for", progress)
            return
    before = place.generation()
    place.request.touch()
    deadline = time.monotonic() + wait
    while place.generation() == before:
        if time.monotonic() > deadline:
            raise IndexUnusable(f"the indexer of {run.path} did not answer within {wait:.0f} s")
        time.sleep(LOOK_SECONDS)


def lag(run: Run, queries: Queries) -> int:
    """Bytes of the journals that are not in the index yet."""
    offsets = queries.offsets()
    try:
        with os.scandir(run.journals) as entries:
            sizes = {e.name: e.stat().st_size for e in entries if e.name.endswith(".jsonl") and e.name[0] != "."}
    except OSError:
        return 0
    return sum(max(0, size - offsets.get(name, 0)) for name, size in sizes.items())
