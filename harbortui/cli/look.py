"""`harbortui ps|status|metrics`: looking at runs.

Guarantees: `status` loads neither Rich nor pydantic nor asyncio, and answers from the read model and the lock alone.
"""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harbortui.cli.options import Json, RunArgument

if TYPE_CHECKING:
    from harbortui.cli.view import View

COLUMNS = ("reward", "honest_reward", "solve_rate", "loss", "entropy", "mismatch_kl", "grad_norm")
SHORT = {"honest_reward": "honest", "solve_rate": "solved", "mismatch_kl": "kl", "grad_norm": "grad"}


def add(app: typer.Typer) -> None:
    app.command(epilog="Example: harbortui ps", rich_help_panel="Look")(ps)
    app.command(epilog="Example: harbortui status demo --json", rich_help_panel="Look")(status)
    app.command(epilog="Example: harbortui metrics demo --last 20", rich_help_panel="Look")(metrics)


def ps(as_json: Json = False) -> None:
    """All runs, newest first: state, step, age, processes."""
    from harbortui.cli import text
    from harbortui.cli.view import look
    from harbortui.runs.layout import all_runs, runs_folder

    views = [look(run) for run in all_runs()]
    if as_json:
        return text.say_json({"runs": [_row(view) for view in views]})
    if not views:
        print(f"no runs in {runs_folder()}; start one with `harbortui demo`")
        return None
    rows = [
        [
            view.name, view.state, "DEMO" if view.demo else view.backend, view.steps(),
            text.age(time.time() - view.started) if view.started else "", f"{_alive(view)}/{len(view.processes)}",
            "" if view.supervisor or view.over else "no supervisor" if _alive(view) else "",
        ]
        for view in views
    ]  # fmt: skip
    print("\n".join(text.table(["run", "state", "backend", "step", "age", "processes", ""], rows, right=(3, 4))))
    return None


def _alive(view: "View") -> int:
    from harbortui.runs.events import ALIVE

    return sum(process["state"] in ALIVE for process in view.processes)


def _row(view: "View") -> dict[str, Any]:
    whole = view.json()
    kept = ("run", "path", "state", "backend", "demo", "step", "total", "started", "ended", "supervisor")
    return {
        **{key: whole[key] for key in kept},
        "processes": {"alive": _alive(view), "all": len(view.processes)}, "alarms": len(view.alarms),
    }  # fmt: skip


def status(run: RunArgument = None, as_json: Json = False) -> None:
    """The state of a run: step, numbers, processes, alarms."""
    from harbortui.cli import text
    from harbortui.cli.view import look
    from harbortui.runs.layout import find

    view = look(find(run))
    if as_json:
        return text.say_json(view.json())
    print("\n".join(_lines(view)))
    return None


def _lines(view: "View") -> list[str]:
    from harbortui.cli import text
    from harbortui.supervisor.logtail import clean

    head = f"{text.paint(clean(view.name), 'bold')}  {text.state(view.state)}"
    head += f" ({view.level})" if view.level else ""
    head += f"  {view.progress()}  {text.age(view.lasted)}" + (f"  attempt {view.attempt}" if view.attempt > 1 else "")
    lines = [text.paint("DEMO: episodes are made up, nothing is trained", "yellow")] if view.demo else []
    lines.append(head)
    if view.reason:
        lines.append("  " + text.cut(clean(view.reason), text.width() - 2))
    if view.last:
        lines.append(view.numbers())
    lines.append(view.episodes())
    if view.supervisor:
        lines.append(f"supervisor {view.supervisor['pid']} on {view.supervisor['host']}")
    rows = [
        [
            clean(process["name"]), process["state"], str(process["pid"] or ""), str(process["restarts"] or ""),
            clean(f"{process['doing']}{' on ' + process['on'] if process['on'] else ''}" or process["reason"]),
        ]
        for process in view.processes
    ]  # fmt: skip
    if rows:
        lines += ["", *text.table(["process", "state", "pid", "restarts", "doing"], rows, right=(2, 3))]
    for alarm in view.alarms:
        colour = "red" if alarm["severity"] == "critical" else "yellow"
        lines.append(text.paint(f"! {clean(alarm['text'])}", colour))
        lines += [f"  -> {clean(alarm['remedy'])}"] if alarm["remedy"] else []
    return [*lines, text.paint(view.hint, "yellow")] if view.hint else lines


def metrics(
    run: RunArgument = None,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, metavar="N", help="Only the last N steps.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values, one line per step.")] = False,
    as_json: Json = False,
) -> None:
    """What each step told: reward, honest reward, loss and more. Steps that a resume replaced are left out."""
    from harbortui.cli import text
    from harbortui.cli.errors import Bad
    from harbortui.cli.view import look, metrics_of
    from harbortui.runs.layout import find

    if as_csv and as_json:
        raise Bad("metrics: --csv and --json exclude each other")
    found = find(run)
    view, steps = look(found), metrics_of(found, last)
    if as_json:
        return text.say_json({"run": view.name, "demo": view.demo, "steps": steps})
    if as_csv:
        import csv

        names = list(dict.fromkeys(key for step in steps for key in step if key != "left_out"))
        writer = csv.DictWriter(sys.stdout, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(steps)
        return None
    if view.demo:
        print(text.paint("DEMO: these numbers are made up", "yellow"))
    if not steps:
        print(f"{view.name}: no step yet")
        return None
    shown = steps if last else steps[-20:]
    known = [name for name in COLUMNS if any(step.get(name) is not None for step in shown)]
    head = ["step", *(SHORT.get(name, name) for name in known), "episodes", "left out", "seconds"]
    rows = [
        [
            str(step["step"]), *(text.number(step.get(name), ".4g") for name in known), str(step["episodes"]),
            str(sum(step["left_out"].values()) or ""), text.number(step["seconds"], ".1f"),
        ]
        for step in shown
    ]  # fmt: skip
    print("\n".join(text.table(head, rows, right=range(len(head)))))
    if len(shown) < len(steps):
        print(f"the last {len(shown)} of {len(steps)} steps; --last N shows more")
    return None
