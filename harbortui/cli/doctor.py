"""`harbortui doctor`: is this machine fit for runs, and if not, what to do about it.

Guarantees: changes nothing and starts nothing that stays; each look takes at most a few seconds. `fail` means that runs
will not work, `warn` that something is missing that some runs need; each such line says the remedy. Exit 1 only when
something fails. `--json`: `{"ok", "checks": [{"name", "state": "ok"|"warn"|"fail", "text", "remedy"}]}`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import typer

from harbortui.cli.options import Json

PATIENCE = 5.0
LEAST_FILES = 4096
GB = 1 << 30


@dataclass(frozen=True)
class Check:
    name: str
    state: str
    text: str
    remedy: str = ""


def add(app: typer.Typer) -> None:
    app.command(epilog="Example: harbortui doctor --json", rich_help_panel="Keep house")(doctor)


def doctor(as_json: Json = False) -> None:
    """Look whether this machine has what runs need, and say what to do where it has not."""
    from harbortui.cli import text

    checks = [check for look in LOOKS for check in look()]
    good = all(check.state != "fail" for check in checks)
    if as_json:
        text.say_json({"ok": good, "checks": [asdict(check) for check in checks]})
    else:
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        wide = max(len(check.name) for check in checks)
        for check in checks:
            state = text.paint(f"{check.state:4}", colours[check.state])
            print(f"{state}  {check.name:{wide}}  {text.plain(check.text)}")
            if check.remedy:
                print(f"{'':{wide + 6}}  -> {text.plain(check.remedy)}")
    if not good:
        raise typer.Exit(1)


def _run(*command: str) -> tuple[int, str]:
    """Exit code and output; -1 where it does not exist or takes too long."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return -1, f"no answer within {PATIENCE:g} s"
    except OSError as error:
        return -1, error.strerror or str(error)
    return done.returncode, done.stdout.decode(errors="replace").strip()


def python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", "ok", f"{version} ({sys.executable})")
    if not sys.platform.startswith("linux"):
        yield Check("system", "fail", sys.platform, "supervision needs Linux 5.4 or newer (pidfds, /proc)")


def tools() -> Iterator[Check]:
    for tool, what, remedy in (
        ("uv", "set-up", "`make quickstart` brings one; or see docs.astral.sh/uv"),
        ("tmux", "agents' terminals", "install it with the system's packages: tmux"),
        ("bwrap", "the sandbox", "install it with the system's packages: bubblewrap"),
    ):
        path = shutil.which(tool) or shutil.which(tool, path=".tools")
        if not path:
            yield Check(tool, "warn", f"not found; needed for {what}", remedy)
            continue
        _, version = _run(path, "-V" if tool == "tmux" else "--version")
        yield Check(tool, "ok", version.splitlines()[0] if version else path)


def namespaces() -> Iterator[Check]:
    if not shutil.which("bwrap"):
        return
    code, said = _run("bwrap", "--ro-bind", "/", "/", "--unshare-user", "--unshare-pid", "--unshare-net", "true")
    if code == 0:
        yield Check("namespaces", "ok", "a sandbox with its own users, processes and network can be made")
    else:
        yield Check(
            "namespaces", "warn", f"no sandbox can be made: {said.splitlines()[-1] if said else code}",
            "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
            "kernel.apparmor_restrict_unprivileged_userns=0), or use environment.type = \"docker\"",
        )  # fmt: skip


def docker() -> Iterator[Check]:
    if not shutil.which("docker"):
        yield Check("docker", "warn", "not found; the sandbox needs none", "for tasks in Docker: install Docker Engine")
        return
    code, said = _run("docker", "info", "--format", "{{.ServerVersion}}")
    if code == 0 and said:
        yield Check("docker", "ok", f"engine {said.splitlines()[-1]}")
    else:
        why = said.splitlines()[-1] if said else f"exit code {code}"
        yield Check("docker", "warn", f"no engine answers: {why}", "start it, and be in the group docker")


def gpus() -> Iterator[Check]:
    if not shutil.which("nvidia-smi"):
        yield Check("gpus", "ok", "none found; the demo and the tiny model need none")
        return
    code, said = _run("nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader")
    if code == 0 and said:
        for i, line in enumerate(said.splitlines()):
            name, total, free = (part.strip() for part in line.split(",", 2))
            yield Check(f"gpu {i}", "ok", f"{name}, {free} of {total} free")
    else:
        yield Check("gpus", "warn", f"nvidia-smi does not answer: {said[:100] or code}", "load the driver")


def places() -> Iterator[Check]:
    from harbortui.runs.layout import LayoutError, private, runs_folder, runtime_folder

    folder = runs_folder()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    usage = shutil.disk_usage(there)
    text = f"{usage.free / GB:.1f} GB of {usage.total / GB:.1f} GB free in {folder}"
    if not os.access(there, os.W_OK):
        yield Check("runs", "fail", f"{folder} cannot be written", "set HARBORTUI_RUNS to a folder of yours")
    elif usage.free < GB or usage.free < usage.total * 0.02:
        yield Check("runs", "warn", text, "free some space, or set HARBORTUI_RUNS to another disk")
    else:
        yield Check("runs", "ok", text)
    try:
        runtime = runtime_folder()
        private(runtime / "probe").rmdir()
        yield Check("runtime", "ok", f"{runtime} (sockets and secrets)")
    except (LayoutError, OSError) as error:
        yield Check("runtime", "fail", str(error), "set XDG_RUNTIME_DIR to a private folder on a local disk")


def limits() -> Iterator[Check]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < LEAST_FILES and hard != resource.RLIM_INFINITY:
        yield Check("open files", "warn", f"at most {hard}", f"raise the hard limit to {LEAST_FILES} (limits.conf)")
    else:
        yield Check("open files", "ok", f"{soft}, may be raised to {'any' if hard < 0 else hard}")


def lingering() -> Iterator[Check]:
    """Whether systemd ends a user's processes when the ssh session ends."""
    if not os.path.isdir("/run/systemd/system") or not shutil.which("loginctl"):
        return
    _, kills = _run("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
                    "org.freedesktop.login1.Manager", "KillUserProcesses")  # fmt: skip
    _, lingers = _run("loginctl", "show-user", str(os.getuid()), "--property=Linger")
    if kills.endswith("true") and "Linger=yes" not in lingers:
        yield Check("logout", "warn", "this machine ends your processes when you log out", "`loginctl enable-linger`")
    else:
        yield Check("logout", "ok", "runs go on when you log out")


def leftovers() -> Iterator[Check]:
    from harbortui.cli.clean import look, vanished
    from harbortui.runs.layout import all_runs

    found = [(run.name, left) for run in all_runs() if (left := look(run)) and not left.kept]
    gone = [(left.run.name, left) for left in vanished()]
    stale = [name for name, left in found if left.processes]
    ended = [(name, left) for name, left in found if not left.processes] + gone
    folders = [(name, folder) for name, left in ended for folder in left.folders]
    if folders:
        names = list(dict.fromkeys(name for name, _ in folders))
        places = ", ".join(str(folder) for _, folder in folders[:3]) + " ..." * (len(folders) > 3)
        yield Check(
            "leftovers", "warn",
            f"sockets and secrets of runs that are over: {', '.join(names[:5])}{' ...' * (len(names) > 5)} ({places})",
            "`harbortui clean --all` removes them",
        )  # fmt: skip
    if stale:
        yield Check(
            "leftovers", "warn", f"processes without a supervisor: {', '.join(stale[:5])}{' ...' * (len(stale) > 5)}",
            f"`harbortui supervise {stale[0]}` goes on with it, `harbortui clean {stale[0]}` ends it",
        )  # fmt: skip
    if not found and not gone:
        yield Check("leftovers", "ok", "no run has left processes, sockets or secrets behind")


LOOKS: tuple[Callable[[], Iterator[Check]], ...] = (
    python, tools, namespaces, docker, gpus, places, limits, lingering, leftovers,
)  # fmt: skip
