"""The live status of a run on a terminal: a few lines that change in place, and above them what has happened.

Guarantees: redrawn only when something changed, at most four times a second; text from the run is cleaned and never
taken for markup; NO_COLOR is respected; fits 80 columns and follows a resize.
"""

import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.text import Text

from harbortui.cli import text
from harbortui.cli.lines import fields
from harbortui.runs.events import (
    AlarmChanged,
    CheckpointChanged,
    Event,
    Note,
    OperatorAction,
    ProcessChanged,
    RunChanged,
)
from harbortui.supervisor.logtail import clean

if TYPE_CHECKING:
    from harbortui.cli.view import View
    from harbortui.runs.layout import Run

BARS = "▁▂▃▄▅▆▇█"
LOUD = ("failed", "holding", "finished", "suspended", "lost")


class Live:
    """The face of a terminal."""

    def __init__(self, run: "Run", steers: bool) -> None:
        self.run, self.steers = run, steers
        self.console = Console(highlight=False, markup=False, emoji=False)
        self._live = RichLive(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._drawn: object = None

    def __enter__(self) -> "Live":
        self._live.start()
        if not self.steers:
            self.tell("the dashboard is not there yet; this is the live status")
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, view: "View", events: list[Event]) -> None:
        for event in events:
            if line := _happened(event):
                self.console.print(line)
            if isinstance(event, RunChanged) and event.state in LOUD and view.bell and time.time() - event.t < 10:
                self.console.bell()
        rows = self._status(view)
        drawn = ([row.markup for row in rows], self.console.size)
        if drawn != self._drawn or events:
            self._drawn = drawn
            self._live.update(Group(*rows), refresh=True)

    def present(self, view: "View") -> None:
        """The status itself is the present."""

    def tell(self, sentence: str) -> None:
        self.console.print(Text(clean(sentence), style="bold"))

    def _status(self, view: "View") -> list[Text]:
        rows = []
        if view.demo:
            rows.append(Text(" DEMO  episodes are made up, nothing is trained ", style="reverse yellow"))
        head = Text.assemble((clean(view.name), "bold"), "  ", (view.state, text.STATES.get(view.state, "")))
        if view.level:
            head.append(f" ({view.level})")
        head.append(f"  {view.progress()}  {text.age(view.lasted)}")
        if view.attempt > 1:
            head.append(f"  attempt {view.attempt}")
        rows.append(head)
        if view.reason and view.state not in ("running", "preparing"):
            rows.append(Text("  " + clean(view.reason)))
        rows.append(self._numbers(view))
        rows.append(Text(view.episodes()))
        rows.append(_processes(view))
        for alarm in view.alarms[:5]:
            style = "bold red" if alarm["severity"] == "critical" else "yellow"
            rows.append(Text("! " + clean(alarm["text"]), style=style))
            if alarm["remedy"]:
                rows.append(Text("  -> " + clean(alarm["remedy"]), style="dim"))
        if not view.over:
            rows.append(Text(self._keys(view), style="dim"))
        return rows

    def _keys(self, view: "View") -> str:
        if self.steers:
            return "Ctrl-C: drain, checkpoint, end (twice: at once)"
        return f"q or Ctrl-C: leave it running   end it: harbortui stop {view.name}"

    def _numbers(self, view: "View") -> Text:
        line = Text(view.numbers() or "no step yet")
        room = self.console.width - len(line) - 2
        if room > 8:
            line.append("  " + spark(view.rewards[-min(room, 40) :]), style="cyan")
        return line


def spark(values: list[float]) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BARS[min(7, int((value - low) / span * 8))] for value in values)


def _processes(view: "View") -> Text:
    line = Text()
    for i, process in enumerate(view.processes):
        line.append("" if i == 0 else " · ")
        line.append(clean(process["name"]) + " ")
        line.append(process["state"], style=text.STATES.get(process["state"], ""))
        if process["restarts"]:
            line.append(f" ({process['restarts']} restarts)", style="yellow")
    return line


def _happened(event: Event) -> Text | None:
    """One line above the status for what a watcher would want to have seen."""
    bad = isinstance(event, ProcessChanged) and event.state in ("backoff", "failed")
    if not (bad or isinstance(event, RunChanged | AlarmChanged | CheckpointChanged | OperatorAction | Note)):
        return None
    found = fields(event)
    if not found:
        return None
    kind = found.pop("event")
    what = found.pop("text", None) or found.pop("answer", None) or found.pop("reason", None) or ""
    subject = str(found.get({"operator": "verb", "note": "user"}.get(kind, kind), ""))
    state = "" if kind in ("state", "note") else str(found.get("state", ""))
    line = Text.assemble((text.clock(event.t)[11:19], "dim"), f" {kind} ", (clean(subject), "bold"))
    line.append(f" {state}" if state else "", style=text.STATES.get(state, ""))
    line.append(f": {clean(str(what))}" if what else "")
    return line
