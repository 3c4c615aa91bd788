"""`harbortui ps|status|metrics`: looking at runs."""

import sys
from typing import Annotated

import typer

from harbortui.cli.options import Json, RunArgument

COLUMNS = ("reward", "honest_reward", "solve_rate", "loss", "entropy", "mismatch_kl", "grad_norm")
SHORT = {"honest_reward": "honest", "solve_rate": "solved", "mismatch_kl": "kl", "grad_norm": "grad"}
LEAST = ("grad", "entropy", "kl", "left out", "seconds", "episodes", "solved", "loss")


def add(app: typer.Typer) -> None:
    app.command(epilog="Example: harbortui ps", rich_help_panel="Look")(ps)
    app.command(epilog="Example: harbortui status demo --json", rich_help_panel="Look")(status)
    app.command(epilog="Example: harbortui metrics demo --last 20", rich_help_panel="Look")(metrics)


def ps(as_json: Json = False) -> None:
    """All runs, newest first: state, step, age, processes."""
    from harbortui.cli.status import show_all

    show_all(as_json)


def status(run: RunArgument = None, as_json: Json = False) -> None:
    """The state of a run: step, numbers, processes, alarms."""
    from harbortui.cli.status import show

    show(run, as_json)


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
    name = text.plain(view.name)
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
        print(f"{name}: no step yet")
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
    print("\n".join(text.table(head, rows, range(len(head)), _spare(head))))
    if len(shown) < len(steps):
        print(f"the last {len(shown)} of {len(steps)} steps; --last N shows more")
    return None


def _spare(head: list[str]) -> list[int]:
    """Columns that a narrow terminal can do without, first those that are missed least."""
    return [head.index(name) for name in LEAST if name in head]
