"""Demo runs for tests: launched as users launch them, read as screens read them, ended whatever happens."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harbortui.backends.plans import plan_for
from harbortui.config.load import load
from harbortui.runs.events import Event, ProcessChanged, RunChanged, decode
from harbortui.runs.layout import Run, create, process_of_journal, runs_folder
from harbortui.supervisor import client, ledger, plan, procfs, secrets
from harbortui.supervisor.lock import supervised
from harbortui.supervisor.plan import Plan, ProcessSpec

FAST = ["demo.rate=400.0", "demo.step_seconds=0.05", "demo.log_lines_per_second=20.0", "run.budget.steps=100000"]


def prepare(folder: Path, *overrides: str, name: str = "demo") -> Run:
    """A run directory with a plan, not yet launched."""
    config = folder / "config.toml"
    config.write_text('[backend]\nname = "demo"\n')
    loaded = load(config, [*FAST, *overrides])
    path = runs_folder() / name
    run = Run(path)
    made = create(path, {"run.toml": loaded.text, "plan.json": plan.encode(plan_for(loaded.config, run)).decode()})
    secrets.store(made, secrets.make(loaded.env))
    return made


@contextmanager
def running(folder: Path, *overrides: str, name: str = "demo") -> Iterator[Run]:
    run = prepare(folder, *overrides, name=name)
    client.launch(run)
    try:
        yield run
    finally:
        end(run)


def end(run: Run) -> None:
    """Stop at once, then make sure that nothing is left, whatever state the test has brought it into."""
    try:
        with client.connect(run) as speaker:
            speaker.ask("stop", now=True)
        until(lambda: not supervised(run), "the supervisor leaves", 30)
    except client.NotControllable:
        pass
    owner = ledger.read(run).owner
    for proc in procfs.marked(f"{owner}:"):
        procfs.kill(proc.pid, proc.start)


def until(condition: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    """Wait for something outside this process to become true; the pause is a poll, not a guess."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never within {seconds:g} s: {what}"
        time.sleep(0.02)
    return found


def events(run: Run, process: str | None = None, kind: type[Event] | None = None) -> list[Any]:
    """Every whole event in the journals (of one process, of one kind), in time order."""
    found = []
    for path in run.journals.glob("*.jsonl"):
        if process in (None, process_of_journal(path.name)):
            for line in path.read_bytes().split(b"\n")[:-1]:
                try:
                    found.append(decode(line))
                except ValueError:
                    continue
    return sorted((e for e in found if kind is None or isinstance(e, kind)), key=lambda e: e.t)


def log(run: Run, process: str) -> str:
    try:
        return run.log(process).read_text()
    except FileNotFoundError:
        return ""


def state(run: Run) -> str:
    return ledger.read(run).state


def in_state(run: Run, *states: str, seconds: float = 30.0) -> str:
    until(lambda: state(run) in states, f"{run.name} is {' or '.join(states)} (is {state(run)})", seconds)
    return state(run)


def pid_of(run: Run, process: str) -> int:
    """The pid of the child that lives now."""
    entry = ledger.read(run).processes.get(process)
    return entry.pid if entry and entry.state in ("ready", "running") and procfs.alive(entry.pid, entry.start) else 0


def left_over(run: Run) -> list[str]:
    """What of this run still lives: marked processes, keepers named by the ledger or by their command line."""
    found = [f"{p.pid} {_command(p.pid)}" for p in procfs.marked(f"{ledger.read(run).owner}:")]
    runtime = str(run.runtime)
    for pid in procfs.everything():
        try:
            spec = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if runtime in spec or (str(run.path) in spec and pid != os.getpid()):
            found.append(f"{pid} {spec}")
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return "?"


def a_run(*specs: ProcessSpec, name: str = "custom", **more: object) -> Run:
    whole = Plan(name=name, backend="demo", processes=list(specs), **more)  # type: ignore[arg-type]
    run = create(runs_folder() / name, {"run.toml": "", "plan.json": plan.encode(whole).decode()})
    secrets.store(run, secrets.make())
    return run


def shell(name: str, script: str, **more: object) -> ProcessSpec:
    return ProcessSpec(name=name, role="server", command=["bash", "-c", script], **more)  # type: ignore[arg-type]


def states(run: Run) -> list[str]:
    found = [e.state for e in events(run, "supervisor", RunChanged)]
    return [s for i, s in enumerate(found) if i == 0 or found[i - 1] != s]


def lives_of(run: Run, process: str) -> list[ProcessChanged]:
    return [e for e in events(run, "supervisor", ProcessChanged) if e.process == process]
