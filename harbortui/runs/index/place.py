"""Where a run's index lies, and who may write it.

Guarantees: the index lies in the run directory when this user can write there and the file system is local, else in
the user's cache (HARBORTUI_CACHE, XDG_CACHE_HOME or ~/.cache), named by the run's real path. `index.sqlite` is a link
to the newest of its generations (`index-<hex>.sqlite`), each with its own WAL files: replacing an index is one rename
of the link, and readers of the old one are never disturbed. Whoever holds `index.lock` (flock, freed by the kernel
when its holder dies) writes; nobody else does.

On failure: where neither place can be written, `NoPlace` names both and the variable that helps.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from harbortui.runs.layout import LayoutError, Run

REMOTE = frozenset(
    "nfs nfs4 cifs smb2 smb3 smbfs ncpfs afs ceph glusterfs lustre gpfs beegfs pvfs2 orangefs ocfs2 gfs2 9p virtiofs "
    "prl_fs vboxsf vmhgfs".split()
)


class NoPlace(LayoutError):
    """Neither the run directory nor the cache can hold an index."""


@dataclass(frozen=True)
class Place:
    """A folder that holds a run's index. `why` says why it is not the run directory; empty when it is."""

    folder: Path
    why: str = ""

    @property
    def index(self) -> Path:
        return self.folder / "index.sqlite"

    @property
    def lock(self) -> Path:
        return self.folder / "index.lock"

    @property
    def request(self) -> Path:
        """A file whose existence asks the indexer at work to build the index anew."""
        return self.folder / "index.rebuild"

    def fresh(self) -> Path:
        """A name for the next generation."""
        return self.folder / f"index-{secrets.token_hex(4)}.sqlite"

    def generation(self) -> Path | None:
        """The file that the index is now."""
        try:
            return self.folder / os.readlink(self.index)
        except OSError:
            return self.index if self.index.is_file() else None

    def point_at(self, generation: Path) -> None:
        """Make `generation` the index, in one rename, and remove the others."""
        aside = self.folder / f".index-{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
        aside.symlink_to(generation.name)
        os.replace(aside, self.index)
        self.sweep()

    def sweep(self) -> None:
        """Remove generations that are not the index: those replaced, and those never finished. Lock held."""
        kept = self.generation()
        for path in self.folder.glob("index-*.sqlite*"):
            if kept is None or not path.name.startswith(kept.name):
                with contextlib.suppress(OSError):
                    path.unlink()


class Lock:
    """The right to write an index, held from `take` until `free` or the end of the process."""

    def __init__(self, place: Place) -> None:
        self._path = place.lock
        self._fd = -1

    def take(self) -> bool:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        with contextlib.suppress(OSError):
            os.truncate(fd, 0)
            os.write(fd, b"%d\n" % os.getpid())
        return True

    def free(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.free()


def place_of(run: Run) -> Place:
    folder = run.path
    if not os.access(folder, os.W_OK | os.X_OK):
        why = "the run directory cannot be written"
    elif kind := remote_kind(folder):
        why = f"the run directory is on a network file system ({kind})"
    else:
        return Place(folder)
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    cached = cache_folder() / f"{folder.name}-{digest}"
    try:
        cached.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoPlace(
            f"no place for the index of {folder}: {why}, and {cached} cannot be made ({error.strerror}); "
            "set HARBORTUI_CACHE to a folder on a local disk"
        ) from None
    return Place(cached, why)


def cache_folder() -> Path:
    if named := os.environ.get("HARBORTUI_CACHE"):
        return Path(named).expanduser().absolute() / "index"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "harbortui" / "index"


def remote_kind(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The kind of file system that `path` is on when it is not a local one, else nothing."""
    try:
        table = mounts.read_text(errors="surrogateescape")
    except OSError:
        return ""
    real = str(path.resolve())
    best, kind = "", ""
    for line in table.splitlines():
        fields = line.split()
        if "-" not in fields[6:]:
            continue
        point = fields[4].replace("\\040", " ")
        inside = real == point or point == "/" or real.startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[fields.index("-", 6) + 1]
    return kind if kind in REMOTE or kind.startswith("fuse.") else ""
