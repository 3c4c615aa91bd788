"""What the operator wants of a run: one small file, written by the supervisor, read by every steered process.

Guarantees: the file is replaced whole and survives the supervisor, so that a pause or a changed setting holds for
processes that start later. `sequence` grows with every change; a steered process journals `Acknowledged(sequence)`
once it obeys, and only then does any face say that it is so.

On failure: a file that was never there means that nothing special is wanted; one that has vanished or cannot be read
means what it last meant.
"""

import os
from typing import Any, Literal

import msgspec

from harbortui.runs.events import Acknowledged
from harbortui.runs.journal import Journal
from harbortui.runs.layout import Run, write_whole

Level = Literal["", "dispatch", "generate"]


class EpisodeOrder(msgspec.Struct, omit_defaults=True):
    id: str
    do: Literal["cancel", "requeue"]
    sequence: int


class Desired(msgspec.Struct, omit_defaults=True):
    """`checkpoint` and `stop` name the request that asked; `episodes` keeps the last orders, for late readers."""

    sequence: int = 0
    pause: Level = ""
    since: float = 0.0
    checkpoint: str = ""
    settings: dict[str, Any] = {}
    episodes: list[EpisodeOrder] = []


def read(run: Run) -> Desired | None:
    try:
        return msgspec.json.decode(run.desired.read_bytes(), type=Desired)
    except (OSError, msgspec.DecodeError):
        return None


def write(run: Run, desired: Desired) -> None:
    write_whole(run.desired, msgspec.json.encode(desired))


class Steering:
    """A process's view of the desired state: `changed()` is the new one when there is one."""

    def __init__(self, run: Run, journal: Journal) -> None:
        self.run, self.journal = run, journal
        self.now = Desired(sequence=-1)
        self._seen: tuple[int, int] | None = None

    def changed(self) -> Desired | None:
        try:
            found = os.stat(self.run.desired)
            seen = (found.st_ino, found.st_mtime_ns)
        except OSError:
            seen = (0, 0)
        if seen == self._seen:
            return None
        self._seen = seen
        fresh = read(self.run) or (Desired() if self.now.sequence < 0 else self.now)
        if fresh.sequence == self.now.sequence:
            return None
        self.now = fresh
        return fresh

    def acknowledge(self) -> None:
        """Say that what `now` asks for is being obeyed."""
        self.journal.append(Acknowledged(sequence=self.now.sequence))
