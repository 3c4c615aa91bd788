"""From a config to a supervised run.

Guarantees: `prepare` reads and checks everything and touches no disk. `start` makes the run directory whole, keeps the
secrets outside of it and returns when the run is supervised; where that is refused the directory is removed again,
since nothing has run. A name that the config gave is counted up when it is taken (`demo-2`); one that the user asked
for by hand is refused instead.

On failure: the sentence of whoever refused (`ConfigError`, `PlanError`, `SecretsMissing`, `LaunchFailed`, ...).
"""

import contextlib
import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from harbortui.backends.plans import NotThere, plan_for
from harbortui.cli.errors import Bad
from harbortui.config.load import Loaded, load
from harbortui.config.sections import NAME
from harbortui.runs import layout
from harbortui.runs.layout import Run
from harbortui.supervisor import client, plan, secrets
from harbortui.supervisor.lock import supervised, user_name


@dataclass(frozen=True)
class Prepared:
    """A run that could be started. `named` says that the user chose its name by hand."""

    loaded: Loaded
    run: Run
    plan: plan.Plan
    named: bool

    def files(self) -> dict[str, str]:
        return {"run.toml": self.loaded.text, "plan.json": plan.encode(self.plan).decode()}


def prepare(
    config: Path, overrides: Sequence[str] = (), name: str | None = None, folder: Path | None = None
) -> Prepared:  # fmt: skip
    if name is not None:
        if not NAME.fullmatch(name):
            allowed = "1 to 64 letters, digits, '.', '_' and '-', first a letter or digit, last not '.'"
            raise Bad(f"--name: found {name!r}, allowed: {allowed}")
        overrides = [*overrides, f"run.name={json.dumps(name)}"]
    loaded = load(config, overrides)
    folder = folder or layout.runs_folder(config)
    return _prepared(loaded, Run(_free(folder, loaded.config.run.name, name is not None)), name is not None)


def _prepared(loaded: Loaded, run: Run, named: bool) -> Prepared:
    try:
        found = plan_for(loaded.config, run)
        plan.check(found, ports=True)
    except (NotThere, plan.PlanError) as error:
        raise Bad("\n".join(f"{loaded.path}: {line}" for line in str(error).splitlines())) from None
    if loaded.missing:
        raise secrets.SecretsMissing(secrets.lacking(loaded.missing))
    return Prepared(loaded, run, found, named)


def _free(folder: Path, name: str, named: bool) -> Path:
    path, count = folder / name, 1
    if named and path.exists():
        raise layout.RunExists(
            f"--name: {path} exists; choose another name, or go on with that run: `harbortui run --resume {name}`"
        )
    while path.exists():
        count += 1
        path = folder / f"{name}-{count}"
    return path


def make(prepared: Prepared) -> Run:
    """The run directory and its secrets; nothing is started."""
    folder = prepared.run.path.parent
    known = secrets.make(prepared.loaded.secrets)
    if names := secrets.missing(prepared.plan, known.environment):
        raise secrets.SecretsMissing(secrets.lacking(names))
    while True:
        try:
            run = layout.create(prepared.run.path, prepared.files())
            break
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            sentence = f"{folder}: runs cannot be made there ({error.strerror})"
            raise layout.LayoutError(f"{sentence}; set HARBORTUI_RUNS to a folder of yours") from None
        except layout.RunExists:
            if prepared.named:
                raise
            again = _free(prepared.run.path.parent, prepared.loaded.config.run.name, False)
            prepared = _prepared(prepared.loaded, Run(again), False)
    try:
        secrets.store(run, known)
        _name(run)
    except BaseException:
        remove(run)
        raise
    return run


def start(prepared: Prepared) -> Run:
    run = make(prepared)
    try:
        client.launch(run)
    except client.LaunchFailed as refusal:
        if not supervised(run):
            reason = str(refusal).replace(f"{run.plan}: ", "")
            if (log := run.log("supervisor")).is_file() and str(log) in reason:
                reason += "\n" + log.read_text(errors="replace")[-2000:].strip()
            remove(run)
            raise client.LaunchFailed(f"{run.name} was not started: {reason}") from None
        raise
    return run


def resume(run: Run) -> Run:
    """Go on with a run that has ended, as a new attempt."""
    if (owner := run.path.stat().st_uid) != os.getuid():
        raise client.NotControllable(f"{run.name} belongs to {user_name(owner)}; you may look at it, not go on with it")
    client.launch(run, "resume")
    with contextlib.suppress(OSError):
        _name(run)
    return run


def _name(run: Run) -> None:
    """Whose runtime folder it is, for `clean` when the run directory has vanished."""
    layout.write_whole(run.runtime / "run", os.fsencode(run.path.resolve()), mode=0o600)


def foreground(run: Run, mode: str, as_json: bool) -> NoReturn:
    """Become the supervisor: this process is it from here on. A child tells the progress on standard output."""
    sys.stdout.flush()
    supervisor = os.getpid()
    if os.fork() == 0:
        os._exit(_tell(run, supervisor, as_json))
    command = [*client.daemon_command(run, mode), "--foreground"]
    os.execv(command[0], command)


def _tell(run: Run, supervisor: int, as_json: bool) -> int:
    from harbortui.cli.follow import tell

    os.setsid()
    while not supervised(run):
        if os.getppid() != supervisor:
            return 1
        time.sleep(0.05)
    return tell(run, as_json)


def remove(run: Run) -> None:
    """Take back what `make` made. Only for a run in which nothing has run."""
    shutil.rmtree(run.runtime, ignore_errors=True)
    shutil.rmtree(run.path, ignore_errors=True)
