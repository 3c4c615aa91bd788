"""Where everything of a run lies: the only module that knows the names inside a run directory.

Guarantees: `Run` is a path and nothing else; making one touches no disk. `create` makes a run directory whole or
not at all. `find` and `newest` see only directories that are runs. What must not lie in a run directory (secrets,
sockets, whose paths must be short) lies in the user's runtime folder, 0700 and owned by the user.

On failure: `RunNotFound` and `RunExists` are one sentence with the remedy; `UnsafeFolder` says who owns what.
"""

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("journal", "logs", "trials", "weights", "rollouts", "checkpoints")


class LayoutError(Exception):
    """Something about the folder of runs that the user can mend."""


class RunNotFound(LayoutError):
    pass


class RunExists(LayoutError):
    pass


class UnsafeFolder(LayoutError):
    pass


@dataclass(frozen=True)
class Run:
    """One run: one directory. `found_runtime`: where its sockets really are, when that is known from its ledger."""

    path: Path
    found_runtime: Path | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "run.toml"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def journals(self) -> Path:
        return self.path / "journal"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def index(self) -> Path:
        return self.path / "index.sqlite"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def desired(self) -> Path:
        return self.path / "desired.json"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.json"

    @property
    def lock(self) -> Path:
        return self.path / "supervisor.lock"

    @property
    def pid(self) -> Path:
        return self.path / "supervisor.pid"

    @property
    def control(self) -> Path:
        return self.path / "control.sock"

    @property
    def runtime(self) -> Path:
        """This run's part of the runtime folder: sockets and secrets. Not made here."""
        if self.found_runtime:
            return self.found_runtime
        digest = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:12]
        return runtime_folder() / digest

    def journal(self, process: str, pid: int, attempt: int) -> Path:
        return self.journals / f"{process}-{pid}-{attempt}.jsonl"

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"


def process_of_journal(name: str) -> str:
    """`rollouts-0-4711-1.jsonl` is a journal of `rollouts-0`."""
    return name.removesuffix(".jsonl").rsplit("-", 2)[0]


def runs_folder(start: Path | None = None) -> Path:
    """HARBORTUI_RUNS, else `runs/` of the project around `start` (a config, or the current folder)."""
    if named := os.environ.get("HARBORTUI_RUNS"):
        return Path(named).expanduser().absolute()
    here = (start or Path.cwd()).absolute()
    here = here if here.is_dir() else here.parent
    for folder in (here, *here.parents):
        if any((folder / mark).exists() for mark in ("pyproject.toml", ".git", "runs")):
            return folder / "runs"
    return (here.parent if here.name == "configs" else here) / "runs"


def is_run(path: Path) -> bool:
    return (path / "plan.json").is_file() or (path / "journal").is_dir()


def all_runs(folder: Path | None = None) -> list[Run]:
    """Newest first, by the time of the directory's birth as its plan tells it."""
    folder = folder or runs_folder()
    try:
        found = [Run(p) for p in folder.iterdir() if not p.name.startswith(".") and is_run(p)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda run: (_born(run), run.name), reverse=True)


def _born(run: Run) -> float:
    for path in (run.plan, run.path):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return 0.0


def find(name: str | None = None, folder: Path | None = None) -> Run:
    """A run by name or path; the newest when no name is given (None: an empty one is somebody's mistake)."""
    folder = folder or runs_folder()
    if name is not None and not name.strip():
        raise RunNotFound("the name of the run is empty; give a name or a path, or leave it out for the newest run")
    if name is None:
        runs = all_runs(folder)
        if not runs:
            raise RunNotFound(f"no runs in {folder}; start one with `harbortui run CONFIG` or set HARBORTUI_RUNS")
        return runs[0]
    for path in (folder / name, Path(name).expanduser()):
        if is_run(path):
            return Run(path.absolute())
    known = ", ".join(run.name for run in all_runs(folder)[:5])
    hint = f"runs there: {known}" if known else "there are none; set HARBORTUI_RUNS or give a path"
    raise RunNotFound(f"no run named {name!r} in {folder} ({hint})")


def create(path: Path, files: dict[str, str]) -> Run:
    """Make a run directory with these files in it: under another name first, then renamed into place."""
    path = path.absolute()
    if path.exists():
        raise RunExists(f"{path} exists; choose another name, or go on with it: `harbortui run --resume {path.name}`")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        aside.chmod(0o755)
        for folder in FOLDERS:
            (aside / folder).mkdir()
        for name, text in files.items():
            (aside / name).write_text(text)
        aside.rename(path)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if path.exists():
            raise RunExists(f"{path} exists; choose another name") from None
        raise LayoutError(f"cannot make {path}: {error.strerror}") from error
    return Run(path)


def runtime_folder() -> Path:
    """The user's private folder for sockets and secrets, in memory where the machine has such a place."""
    uid = os.getuid()
    named = os.environ.get("HARBORTUI_RUNTIME") or os.environ.get("XDG_RUNTIME_DIR")
    if named and os.access(named, os.W_OK):
        return Path(named) / "harbortui"
    for base in (f"/run/user/{uid}", "/dev/shm", tempfile.gettempdir()):
        if os.path.isdir(base) and os.access(base, os.W_OK):
            return Path(base) / f"harbortui-{uid}"
    raise LayoutError("no folder for sockets and secrets; set XDG_RUNTIME_DIR to a private one")


def private(folder: Path) -> Path:
    """Make `folder` (and its parent) 0700, and refuse one that somebody else owns or that is a link."""
    for part in (folder.parent, folder):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = part.lstat()
        if not os.path.isdir(part) or os.path.islink(part) or found.st_uid != os.getuid():
            raise UnsafeFolder(f"{part} is owned by uid {found.st_uid} or is a link; set XDG_RUNTIME_DIR")
        if found.st_mode & 0o077:
            part.chmod(0o700)
    return folder


def write_whole(path: Path, data: bytes, mode: int = 0o644, durable: bool = False) -> None:
    """Replace `path` in one rename: a reader sees the old content or the new."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(fd)
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
