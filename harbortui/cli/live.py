"""The live status of a run on a terminal: a few lines that change in place, and above them what has happened.

Guarantees: redrawn only when something changed, at most four times a second; text from the run is cleaned and never
taken for markup; NO_COLOR is respected; fits the screen and follows a resize: where it is small the processes are cut
first, the line with the keys last. A run that goes on leaves no status behind, one that has ended its last.
"""

import contextlib
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.text import Text

from harbortui.cli import text
from harbortui.cli.label import is_ours
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

if TYPE_CHECKING:
    from harbortui.cli.view import View
    from harbortui.runs.layout import Run

BARS = "▁▂▃▄▅▆▇█"
LOUD = ("failed", "holding", "finished", "suspended", "lost")


class Live:
    """The face of a terminal."""

    def __init__(self, run: "Run", steers: bool) -> None:
        self.run, self.steers, self.interrupts = run, steers, 0
        self.console = Console(highlight=False, markup=False, emoji=False)
        self._live = RichLive(
            console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=True
        )
        self._drawn: object = None
        self._parting = ""
        self._ours = is_ours(run)

    def __enter__(self) -> "Live":
        self._live.start()
        if not self.steers:
            self.tell("the dashboard is not there yet; this is the live status")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._live.stop()
            if self._parting:
                self.tell(self._parting)

    def show(self, view: "View", events: list[Event]) -> None:
        with contextlib.suppress(OSError):
            self._show(view, events)

    def _show(self, view: "View", events: list[Event]) -> None:
        for event in events:
            if line := _happened(event):
                self.console.print(line)
            if isinstance(event, RunChanged) and event.state in LOUD and view.bell and time.time() - event.t < 10:
                self.console.bell()
        self._live.transient = not view.over
        rows = self._status(view)
        drawn = ([row.markup for row in rows], self.console.size)
        if drawn != self._drawn or events:
            self._drawn = drawn
            self._live.update(Group(*rows), refresh=True)

    def present(self, view: "View") -> None:
        """The status itself is the present."""

    def tell(self, sentence: str) -> None:
        with contextlib.suppress(OSError):
            self.console.print(Text(text.plain(sentence), style="bold"), soft_wrap=True)

    def part(self, sentence: str) -> None:
        """The last sentence: said when the status is gone."""
        self._parting = sentence

    def _status(self, view: "View") -> list[Text]:
        """What there is to say, as rows that fit the screen: what matters least is cut first."""
        wide = self.console.width
        blocks: list[tuple[int, list[Text]]] = []
        if view.demo:
            whole = " DEMO  episodes are made up, nothing is trained "
            blocks.append((2, [Text(whole if len(whole) <= wide else " DEMO: made up ", style="reverse yellow")]))
        name = text.cut(text.plain(view.name), max(wide - 24, 8))
        head = Text.assemble((name, "bold"), "  ", (view.state, text.STATES.get(view.state, "")))
        if view.level:
            head.append(f" ({text.plain(view.level)})")
        head.append(f"  {view.progress()}  {text.age(view.lasted)}")
        if view.attempt > 1:
            head.append(f"  attempt {view.attempt}")
        blocks.append((1, self._wrapped(head)))
        if view.reason and view.state not in ("running", "preparing"):
            blocks.append((5, self._wrapped(Text("  " + text.plain(view.reason)))))
        blocks.append((3, self._numbers(view)))
        blocks.append((4, self._wrapped(Text(view.episodes()))))
        blocks.append((7, _flow(_processes(view), " · ", wide)))
        for alarm in view.alarms[:5]:
            style = "bold red" if alarm["severity"] == "critical" else "yellow"
            said = self._wrapped(Text("! " + text.plain(alarm["text"]), style=style))
            if alarm["remedy"]:
                said += self._wrapped(Text("  -> " + text.plain(alarm["remedy"]), style="dim"))
            blocks.append((6, said))
        if not view.over:
            blocks.append((0, [Text(self._keys(view), style="dim")]))
        room = max(self.console.height - 1, 1)
        while sum(len(rows) for _, rows in blocks) > room:
            max((block for block in blocks if block[1]), key=lambda block: block[0])[1].pop()
        rows = [row for _, rows in blocks for row in rows]
        for row in rows:
            row.truncate(wide, overflow="ellipsis")
        return rows

    def _wrapped(self, line: Text) -> list[Text]:
        return list(line.wrap(self.console, self.console.width))

    def _keys(self, view: "View") -> str:
        """The longest way to say it that fits."""
        if not self.steers:
            end = f"   end it: harbortui stop {text.plain(view.name)}" if self._ours else ""
            ways = [f"q or Ctrl-C: leave it running{end}", "q or Ctrl-C: leave it running", "q: leave it running"]
        elif self.interrupts == 0:
            ways = ["Ctrl-C: drain, checkpoint, end (twice: at once)", "Ctrl-C: drain and end"]
        elif self.interrupts == 1:
            ways = ["it drains, then ends; Ctrl-C: end it at once", "Ctrl-C: end it at once"]
        else:
            ways = ["it ends; Ctrl-C: leave it to itself", "Ctrl-C: leave it"]
        return next((way for way in ways if len(way) <= self.console.width), ways[-1])

    def _numbers(self, view: "View") -> list[Text]:
        lines = _flow([Text(part) for part in view.parts()] or [Text("no step yet")], "  ", self.console.width)
        room = self.console.width - len(lines[-1]) - 2
        if room > 8:
            lines[-1].append("  " + spark(view.rewards[-min(room, 40) :]), style="cyan")
        return lines


def _flow(parts: list[Text], between: str, wide: int) -> list[Text]:
    """Parts on as many lines as they need; none is broken."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + len(between) + part.cell_len <= wide:
            lines[-1].append(between).append_text(part)
        else:
            lines.append(part)
    return lines


def spark(values: list[float]) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BARS[min(7, int((value - low) / span * 8))] for value in values)


def _processes(view: "View") -> list[Text]:
    found = []
    for process in view.processes:
        line = Text(text.plain(process["name"]) + " ")
        line.append(process["state"], style=text.STATES.get(process["state"], ""))
        if process["restarts"]:
            line.append(f" ({process['restarts']} restarts)", style="yellow")
        found.append(line)
    return found


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
    line = Text.assemble((text.clock(event.t)[11:19], "dim"), f" {kind} ", (text.plain(subject), "bold"))
    line.append(f" {state}" if state else "", style=text.STATES.get(state, ""))
    line.append(f": {text.plain(str(what))}" if what else "")
    return line
