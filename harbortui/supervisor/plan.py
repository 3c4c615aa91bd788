"""A plan: the processes of a run, as data.

Guarantees: `load` returns a plan that can be executed, or raises `PlanError` naming the path of every bad field
(`processes[2].ready.target: ...`) before anything has started. `order` is a start order in which nothing stands
before what it depends on. A plan holds names of secrets, never values.

On failure: nothing is changed; the plan is refused whole.
"""

import difflib
import math
import re
import shutil
import signal
import socket
from pathlib import Path
from typing import Literal

import msgspec

VERSION = 1
ROLES = ("server", "trainer", "orchestrator", "rollouts", "env-server", "indexer", "reader", "sink")
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,47}")
Until = Literal["started", "ready", "exited"]


class Struct(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class Probe(Struct):
    """`target` is a URL (http), a path (unix, file), a regular expression (log) or unused (command)."""

    kind: Literal["http", "unix", "log", "file", "command"]
    target: str = ""
    command: list[str] = []
    interval: float = 1.0
    timeout: float = 2.0
    deadline: float = 60.0
    failures: int = 3


class Dependency(Struct):
    process: str
    until: Until = "ready"


class Restart(Struct):
    """`budget` failures in a row without progress are the end; backoff doubles from `backoff` to `backoff_max`."""

    policy: Literal["never", "on-failure", "always"] = "on-failure"
    backoff: float = 0.5
    backoff_max: float = 30.0
    budget: int = 3


class Stop(Struct):
    signal: str = "SIGTERM"
    deadline: float = 10.0


class ProcessSpec(Struct):
    """One process. `on_death` tells what its final failure means for the run, `completes` that its exit 0 ends it well.

    A `steered` process reads the desired state and acknowledges it in its journal. `auxiliary` processes outlast the
    others when the run stops, and their death never stops it.
    """

    name: str
    role: str
    command: list[str]
    env: dict[str, str] = {}
    secrets: list[str] = []
    cwd: str = ""
    gpus: list[int] = []
    ports: list[int] = []
    depends_on: list[Dependency] = []
    ready: Probe | None = None
    live: Probe | None = None
    restart: Restart = msgspec.field(default_factory=Restart)
    stop: Stop = msgspec.field(default_factory=Stop)
    on_death: Literal["fail", "hold", "ignore"] = "fail"
    completes: bool = False
    steered: bool = False
    auxiliary: bool = False


class Notify(Struct):
    """Told when the run ends, fails or is held."""

    bell: bool = False
    command: list[str] = []
    webhook: str = ""


class Watch(Struct):
    """Thresholds of the watchdog, and the limits of the logs."""

    silence: float = 120.0
    phase_factor: float = 6.0
    phase_floor: float = 30.0
    disk_minutes: float = 60.0
    memory_percent: float = 95.0
    log_bytes: int = 64 << 20
    log_files: int = 4
    checkpoint_deadline: float = 120.0
    sample: float = 5.0


class LiveKey(Struct):
    """A value of the config that may change while the run goes on (the verb `set`)."""

    kind: Literal["int", "float"]
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None

    def allowed(self) -> str:
        low = "" if self.minimum is None else f" from {self.minimum:g}"
        low += "" if self.above is None else f" above {self.above:g}"
        high = "" if self.maximum is None else f" to {self.maximum:g}"
        return ("a whole number" if self.kind == "int" else "a number") + low + high

    def read(self, text: str) -> int | float:
        value = int(text) if self.kind == "int" else float(text)
        if not math.isfinite(value):
            raise ValueError(text)
        if (self.minimum is not None and value < self.minimum) or (self.maximum is not None and value > self.maximum):
            raise ValueError(text)
        if self.above is not None and value <= self.above:
            raise ValueError(text)
        return value


class Plan(Struct):
    name: str
    backend: str
    processes: list[ProcessSpec]
    version: int = VERSION
    demo: bool = False
    notify: Notify = msgspec.field(default_factory=Notify)
    watch: Watch = msgspec.field(default_factory=Watch)
    live: dict[str, LiveKey] = {}


class PlanError(Exception):
    """Everything that is wrong with a plan, one line each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def encode(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def load(data: bytes, ports: bool = False) -> Plan:
    """Decode and check. With `ports`, also refuse ports that somebody holds."""
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        raise PlanError([f"{where.strip('.`') or 'plan'}: {message}"]) from None
    except msgspec.DecodeError as error:
        raise PlanError([f"plan: not JSON: {error}"]) from None
    check(plan, ports)
    return plan


def check(plan: Plan, ports: bool = False) -> None:
    problems: list[str] = []
    if plan.version != VERSION:
        problems.append(f"version: found {plan.version}, this program executes {VERSION}")
    if not plan.processes:
        problems.append("processes: empty; a plan needs at least one process")
    names = [spec.name for spec in plan.processes]
    taken: dict[int, str] = {}
    for i, spec in enumerate(plan.processes):
        at = f"processes[{i}]"
        problems += [f"{at}.{problem}" for problem in _check_process(spec)]
        if names.index(spec.name) != i:
            problems.append(f"{at}.name: {spec.name!r} is used twice")
        for j, dependency in enumerate(spec.depends_on):
            if dependency.process not in names:
                hint = difflib.get_close_matches(dependency.process, names, 1)
                problems.append(
                    f"{at}.depends_on[{j}].process: no process named {dependency.process!r}"
                    + (f"; did you mean {hint[0]!r}?" if hint else f"; there are {', '.join(names)}")
                )
        for j, port in enumerate(spec.ports):
            if port in taken:
                problems.append(f"{at}.ports[{j}]: {port} is also asked for by {taken[port]!r}")
            elif ports and (why := port_in_use(port)):
                problems.append(f"{at}.ports[{j}]: {port} is in use ({why}); free it or choose another")
            taken.setdefault(port, spec.name)
    if not problems and (cycle := _cycle(plan)):
        first = names.index(cycle[0])
        problems.append(f"processes[{first}].depends_on: a cycle: {' -> '.join(cycle)}")
    if problems:
        raise PlanError(problems)


def _check_process(spec: ProcessSpec) -> list[str]:
    found: list[str] = []
    if not NAME.fullmatch(spec.name):
        found.append(f"name: {spec.name!r}; allowed are lower-case letters, digits, '-', '_', '.', at most 48")
    if spec.name == "supervisor":
        found.append("name: 'supervisor' is the supervisor's own")
    if spec.role not in ROLES:
        hint = difflib.get_close_matches(spec.role, ROLES, 1)
        found.append(
            f"role: unknown role {spec.role!r}; "
            + (f"did you mean {hint[0]!r}?" if hint else f"allowed: {', '.join(ROLES)}")
        )
    if not spec.command:
        found.append("command: empty")
    elif not shutil.which(spec.command[0], path=spec.env.get("PATH")):
        found.append(f"command[0]: {spec.command[0]!r} is no program that can be run here")
    if spec.cwd and not Path(spec.cwd).is_dir():
        found.append(f"cwd: {spec.cwd!r} is no folder")
    if not hasattr(signal, spec.stop.signal) or not spec.stop.signal.startswith("SIG"):
        found.append(f"stop.signal: {spec.stop.signal!r} is no signal; SIGTERM and SIGINT are usual")
    if spec.stop.deadline <= 0:
        found.append(f"stop.deadline: {spec.stop.deadline}; must be more than 0 seconds")
    if spec.restart.budget < 1 or spec.restart.backoff <= 0 or spec.restart.backoff_max < spec.restart.backoff:
        found.append("restart: budget must be at least 1, backoff more than 0 and at most backoff_max")
    for j, port in enumerate(spec.ports):
        if not 1 <= port <= 65535:
            found.append(f"ports[{j}]: {port} is no port; allowed: 1 to 65535")
    for which in ("ready", "live"):
        probe: Probe | None = getattr(spec, which)
        if probe and (why := _check_probe(probe)):
            found.append(f"{which}.{why}")
    return found


def _check_probe(probe: Probe) -> str:
    if min(probe.interval, probe.timeout, probe.deadline) <= 0 or probe.failures < 1:
        return "interval: interval, timeout, deadline and failures must be more than 0"
    if probe.kind == "command":
        return "" if probe.command else "command: empty; a command probe needs one"
    if not probe.target:
        return f"target: empty; a {probe.kind} probe needs one"
    if probe.kind == "http" and not re.match(r"https?://[^/\s]+", probe.target):
        return f"target: {probe.target!r} is no http URL"
    if probe.kind == "log":
        try:
            re.compile(probe.target)
        except re.error as error:
            return f"target: {probe.target!r} is no regular expression: {error}"
    return ""


def port_in_use(port: int, host: str = "127.0.0.1") -> str:
    """Why `port` cannot be bound, or ''."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _cycle(plan: Plan) -> list[str]:
    after = {spec.name: [d.process for d in spec.depends_on] for spec in plan.processes}
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        path.append(name)
        for other in after[name]:
            if found := visit(other):
                return found
        path.pop()
        done.add(name)
        return []

    return next((found for name in after if (found := visit(name))), [])


def order(plan: Plan) -> list[ProcessSpec]:
    """Start order; stopping goes the other way."""
    placed: dict[str, ProcessSpec] = {}
    while len(placed) < len(plan.processes):
        for spec in plan.processes:
            if spec.name not in placed and all(d.process in placed for d in spec.depends_on):
                placed[spec.name] = spec
    return list(placed.values())
