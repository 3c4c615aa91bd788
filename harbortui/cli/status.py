"""`status` and `ps` without what reads command lines: they are asked often, by prompts, scripts and watchers.

Guarantees: loads neither Typer nor Rich nor pydantic nor asyncio, and answers from the read model and the lock alone.
"""

import time
from typing import Any

from harbortui.cli import text
from harbortui.cli.label import BANNER
from harbortui.cli.view import View, look
from harbortui.runs.events import ALIVE
from harbortui.runs.layout import all_runs, find, runs_folder

_HEAD = ("run", "state", "backend", "step", "age", "processes", "")


def quick(argv: list[str]) -> bool:
    """Answer `status [RUN] [--json]` and `ps [--json]`; False for anything that needs the whole command line."""
    command, *rest = argv
    words = [word for word in rest if word != "--json"]
    if any(word.startswith("-") for word in words) or len(words) > (command == "status"):
        return False
    if command == "ps":
        show_all("--json" in rest)
    else:
        show(words[0] if words else None, "--json" in rest)
    return True


def show(run: str | None, as_json: bool) -> None:
    view = look(find(run))
    if as_json:
        text.say_json(view.json())
    else:
        print("\n".join(_lines(view)))


def show_all(as_json: bool) -> None:
    views = [look(run) for run in all_runs()]
    if as_json:
        text.say_json({"runs": [_row(view) for view in views]})
        return
    if not views:
        print(f"no runs in {runs_folder()}; start one with `harbortui demo`")
        return
    rows = [
        [
            text.plain(view.name), view.state, "DEMO" if view.demo else text.plain(view.backend), view.steps(),
            text.age(time.time() - view.started) if view.started else "", f"{_alive(view)}/{len(view.processes)}",
            "" if view.supervisor or view.over else "no supervisor" if _alive(view) else "",
        ]
        for view in views
    ]  # fmt: skip
    print("\n".join(text.table(_HEAD, rows, right=(3, 4), spare=(4, 5, 3))))


def _alive(view: View) -> int:
    return sum(process["state"] in ALIVE for process in view.processes)


def _row(view: View) -> dict[str, Any]:
    whole = view.json()
    kept = ("run", "path", "state", "backend", "demo", "step", "total", "started", "ended", "supervisor")
    return {
        **{key: whole[key] for key in kept},
        "processes": {"alive": _alive(view), "all": len(view.processes)}, "alarms": len(view.alarms),
    }  # fmt: skip


def _lines(view: View) -> list[str]:
    head = f"{text.paint(text.plain(view.name), 'bold')}  {text.state(view.state)}"
    head += f" ({text.plain(view.level)})" if view.level else ""
    head += f"  {view.progress()}  {text.age(view.lasted)}" + (f"  attempt {view.attempt}" if view.attempt > 1 else "")
    lines = [text.paint(BANNER, "yellow")] if view.demo else []
    lines.append(head)
    if view.reason:
        lines.append("  " + text.cut(text.plain(view.reason), text.width() - 2))
    if view.last:
        lines.append(view.numbers())
    lines.append(view.episodes())
    if view.supervisor:
        lines.append(f"supervisor {view.supervisor['pid']} on {text.plain(view.supervisor['host'])}")
    rows = [
        [
            text.plain(process["name"]), process["state"], str(process["pid"] or ""), str(process["restarts"] or ""),
            text.plain(_doing(process)),
        ]
        for process in view.processes
    ]  # fmt: skip
    if rows:
        lines += ["", *text.table(["process", "state", "pid", "restarts", "doing"], rows, right=(2, 3), spare=(3, 2))]
    for alarm in view.alarms:
        colour = "red" if alarm["severity"] == "critical" else "yellow"
        lines.append(text.paint(f"! {text.plain(alarm['text'])}", colour))
        lines += [f"  -> {text.plain(alarm['remedy'])}"] if alarm["remedy"] else []
    return [*lines, text.paint(text.plain(view.hint), "yellow")] if view.hint else lines


def _doing(process: dict[str, Any]) -> str:
    what = f"{process['doing']}{' on ' + process['on'] if process['on'] else ''}"
    if process["state"] == "lost":
        return f"gone; was {what}" if what else "gone"
    return what or process["reason"]
