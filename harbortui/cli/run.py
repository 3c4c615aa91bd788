"""`harbortui run|train|demo|attach|supervise`: starting a run, going on with one, watching one.

Signals, once the run is up (docs/cli.md): `train` and `demo` steer it (SIGINT drains and checkpoints, twice stops at
once, SIGTERM suspends, SIGHUP leaves it running); `run` and `attach` only watch: SIGINT and `q` leave it running.
With `--foreground` this process becomes the supervisor, and signals are its own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harbortui.cli.options import Json, Overrides, RunArgument, complete_run

if TYPE_CHECKING:
    from harbortui.cli.launch import Prepared
    from harbortui.runs.layout import Run

PANEL = "Start"
Config = Annotated[Path | None, typer.Argument(metavar="CONFIG", help="A TOML file; see docs/config.md.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of the run. Absent: the config's.")]
Resume = Annotated[
    str | None,
    typer.Option("--resume", metavar="RUN", help="Go on with a run that has ended.", autocompletion=complete_run),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and the checks; start nothing.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Start and return.")]
Foreground = Annotated[
    bool, typer.Option("--foreground", help="Supervise in this process: for containers, Slurm and systemd.")
]


def add(app: typer.Typer) -> None:
    for function, example in (
        (run, "harbortui run configs/demo.toml --set demo.rate=500.0"),
        (train, "harbortui train --no-ui configs/demo.toml | tee progress.txt"),
        (demo, "harbortui demo --seconds 20"),
        (attach, "harbortui attach demo"),
        (supervise, "harbortui supervise demo"),
    ):
        app.command(epilog=f"Example: {example}", rich_help_panel=PANEL)(function)


def run(
    config: Config = None, overrides: Overrides = None, name: Name = None, resume: Resume = None,
    detach: Detach = False, foreground: Foreground = False, dry_run: DryRun = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Start a run and watch it. Leaving (Ctrl-C or q) leaves it running."""
    _go(config, overrides, name, resume, detach, foreground, dry_run, as_json, steers=False)


def train(
    config: Config = None, overrides: Overrides = None, name: Name = None, resume: Resume = None,
    no_ui: Annotated[bool, typer.Option("--no-ui", help="Without the dashboard; always so in this version.")] = True,
    detach: Detach = False, foreground: Foreground = False, dry_run: DryRun = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Start a run and see it through, headless. Ctrl-C drains and checkpoints it, twice stops it at once."""
    _go(config, overrides, name, resume, detach, foreground, dry_run, as_json, steers=True)


def _go(
    config: Path | None, overrides: list[str] | None, name: str | None, resume: str | None, detach: bool,
    foreground: bool, dry_run: bool, as_json: bool, steers: bool,
) -> None:  # fmt: skip
    from harbortui.cli.errors import Bad

    if (config is None) == (resume is None):
        raise Bad("give a CONFIG, or --resume RUN" if config is None else "give a CONFIG or --resume RUN, not both")
    if resume is not None and (overrides or name or dry_run):
        raise Bad("--resume goes on with a run as it is; --set, --name and --dry-run are for new ones")
    if detach and foreground:
        raise Bad("--detach and --foreground exclude each other")
    from harbortui.cli import launch
    from harbortui.runs import layout

    if config is not None:
        prepared = launch.prepare(config, overrides or [], name)
        if dry_run:
            return show_plan(prepared, as_json)
        return _begin(prepared, detach, foreground, as_json, steers)
    assert resume is not None
    found = layout.find(resume)
    if foreground:
        launch.foreground(found, "resume", as_json)
    return _see_through(lambda: launch.resume(found), detach, as_json, steers)


def _begin(prepared: "Prepared", detach: bool, foreground: bool, as_json: bool, steers: bool) -> None:
    from harbortui.cli import launch

    if foreground:
        launch.foreground(launch.make(prepared), "start", as_json)
    _see_through(lambda: launch.start(prepared), detach, as_json, steers)


def _see_through(start: "Callable[[], Run]", detach: bool, as_json: bool, steers: bool) -> None:
    """Start it, then say where it is, or follow it. A signal that comes while it starts is heeded after that."""
    from harbortui.cli.follow import follow
    from harbortui.cli.signals import Signals

    with Signals(keys=not (detach or as_json or steers)) as signals:
        run = start()
        if detach:
            return _launched(run, as_json)
        raise typer.Exit(follow(run, signals, steers=steers, as_json=as_json, fresh=True))


def _launched(run: "Run", as_json: bool) -> None:
    from harbortui.cli import text
    from harbortui.supervisor import ledger, plan
    from harbortui.supervisor.lock import holder

    planned = plan.load(run.plan.read_bytes())
    if as_json:
        return text.say_json({
            "run": run.name, "path": str(run.path), "demo": planned.demo, "pid": holder(run),
            "attempt": ledger.read(run).attempt,
        })  # fmt: skip
    name = text.plain(run.name)
    what = "DEMO (made-up episodes, nothing is trained)" if planned.demo else "run"
    print(f"{name}: {what} started in {text.plain(str(run.path))}")
    print(f"  see it: harbortui attach {name}   end it: harbortui stop {name}")
    return None


def show_plan(prepared: "Prepared", as_json: bool) -> None:
    """What would be started, and what was checked."""
    import shlex

    import msgspec

    from harbortui.cli import text
    from harbortui.supervisor import plan

    found = prepared.plan
    checks = [
        "the config is good", "the plan can be executed: programs, names, dependencies",
        f"{sum(len(spec.ports) for spec in found.processes)} ports asked for, none in use", "no secret is missing",
    ]  # fmt: skip
    if as_json:
        return text.say_json({
            "run": prepared.run.name, "path": str(prepared.run.path), "demo": found.demo, "checks": checks,
            "plan": msgspec.to_builtins(found), "started": False,
        })  # fmt: skip
    demo = "DEMO (made-up episodes, nothing is trained), " if found.demo else ""
    print(f"{prepared.run.name}: {demo}backend {found.backend}, would lie in {prepared.run.path}")
    rows = []
    for spec in plan.order(found):
        after = ", ".join(d.process for d in spec.depends_on)
        rows.append([spec.name, spec.role, after, f"{spec.restart.policy}, {spec.on_death}", shlex.join(spec.command)])
    print("\n".join(text.table(["process", "role", "after", "restart, on death", "command"], rows, spare=(2, 3))))
    for check in checks:
        print(f"ok  {check}")
    print("nothing was started")
    return None


DEMO = """
[run]
name = "demo"

[backend]
name = "demo"

[rollouts]
group_size = 4
groups_per_step = 4
"""


def demo(
    seconds: Annotated[float | None, typer.Option(min=0.1, metavar="N", help="End after so many seconds.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, max=100_000, metavar="R", help="Events per second.")] = None,
    episodes: Annotated[int | None, typer.Option(min=1, max=100_000, metavar="N", help="Episodes at once.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=256, metavar="N", help="Rollout workers.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many steps.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Seed of all choices.")] = None,
    name: Name = None, overrides: Overrides = None, detach: Detach = False,
    foreground: Foreground = False, dry_run: DryRun = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Run a demo: real processes and a real run directory, made-up episodes. Needs no model and no GPU."""
    import tempfile

    from harbortui.cli import launch
    from harbortui.runs.layout import runs_folder

    wanted = {
        "demo.rate": rate, "demo.episodes": episodes, "demo.workers": workers, "run.budget.steps": steps,
        "run.seed": seed, "run.budget.hours": None if seconds is None else seconds / 3600,
    }  # fmt: skip
    given = [f"{key}={value!r}" for key, value in wanted.items() if value is not None]
    with tempfile.TemporaryDirectory(prefix="harbortui-") as folder:
        config = Path(folder) / "demo.toml"
        config.write_text(DEMO)
        prepared = launch.prepare(config, [*given, *(overrides or [])], name, runs_folder())
    if dry_run:
        return show_plan(prepared, as_json)
    return _begin(prepared, detach, foreground, as_json, steers=True)


def attach(run: RunArgument = None, as_json: Json = False) -> None:
    """Watch a run, whoever started it. Leaving (Ctrl-C or q) leaves it as it is."""
    from harbortui.cli.follow import follow
    from harbortui.cli.signals import Signals
    from harbortui.runs import layout

    found = layout.find(run)
    with Signals(keys=not as_json) as signals:
        raise typer.Exit(follow(found, signals, steers=False, as_json=as_json))


def supervise(run: RunArgument = None, foreground: Foreground = False, as_json: Json = False) -> None:
    """Start a new supervisor that takes over what of the run is alive."""
    from harbortui.cli import launch, text
    from harbortui.cli.label import label
    from harbortui.runs import layout
    from harbortui.supervisor import client
    from harbortui.supervisor.lock import Refused, holder, supervised

    found = layout.find(run)
    if supervised(found):
        raise Refused(f"{found.name} has a supervisor already (pid {holder(found) or '?'})")
    if why := client.uncontrollable(found):
        raise client.NotControllable(why)
    if foreground:
        launch.foreground(found, "adopt", as_json)
    record = client.launch(found, "adopt")
    if as_json:
        return text.say_json({"run": found.name, "pid": record["pid"], "attempt": record["attempt"]})
    print(f"{label(found)}: supervised again, by process {record['pid']}")
    return None
