"""`harbortui logs`: what the processes wrote, in time order.

Guarantees: every byte of a run passes the sanitiser before it is printed. Following ends by itself when nothing of the
run is left to write.
"""

import re
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from harbortui.cli.options import Json, RunArgument, complete_process

if TYPE_CHECKING:
    from harbortui.runs.layout import Run
    from harbortui.supervisor.logtail import Line

COLOURS = ("cyan", "green", "yellow", "blue", "magenta", "red")
LOOK = 1.0
FIRST = 100


def add(app: typer.Typer) -> None:
    example = "harbortui logs -f --process trainer --grep 'loss|error'"
    app.command(epilog=f"Example: {example}", rich_help_panel="Look")(logs)


def logs(
    run: RunArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    process: Annotated[
        list[str] | None,
        typer.Option(
            "--process",
            "-p",
            metavar="PROCESS",
            help="Only this process; may be given many times.",
            autocompletion=complete_process,
        ),
    ] = None,
    grep: Annotated[str, typer.Option("--grep", "-g", metavar="REGEX", help="Only lines that match.")] = "",
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", min=0, metavar="N", help="Only the last N; 100 where nothing is said."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="From the first line on.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """The log lines of all processes, merged in time order."""
    from harbortui.cli.errors import Bad
    from harbortui.cli.label import BANNER, is_demo
    from harbortui.runs import layout
    from harbortui.supervisor import logtail

    if everything and lines is not None:
        raise Bad("logs: --all and --lines exclude each other")
    lines = FIRST if lines is None else lines
    found = layout.find(run)
    names = _chosen(found, process or [])
    pattern = _pattern(grep)
    printer = _Printer(found, names, as_json)
    if not as_json and is_demo(found):
        print(BANNER)
    coming = logtail.follow(found, process or None)
    if follow:
        next(coming)
    if everything:
        shown: Iterable[Line] = logtail.read(found, names)
    elif pattern:
        shown = deque((line for line in logtail.read(found, names) if pattern.search(line.text)), maxlen=lines)
    else:
        shown = logtail.read(found, names, lines) if lines else []
    recent: deque[Line] = deque(maxlen=2000)
    for line in shown:
        if not pattern or pattern.search(line.text):
            printer.say(line)
            recent.append(line)
    if follow:
        sys.stdout.flush()
        known = Counter(recent)
        for line in _until_over(found, coming):
            if known[line] > 0:
                known[line] -= 1
            elif not pattern or pattern.search(line.text):
                printer.say(line)


def _chosen(run: "Run", wanted: list[str]) -> list[str]:
    from harbortui.cli.errors import Bad
    from harbortui.config.errors import nearest
    from harbortui.supervisor import logtail, plan

    there = logtail.processes(run)
    if not wanted:
        return there
    try:
        there = sorted({*there, *(spec.name for spec in plan.load(run.plan.read_bytes()).processes)})
    except (OSError, plan.PlanError):
        pass
    for name in wanted:
        if name not in there:
            near = nearest(name, there)
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(there) or 'none yet'}"
            raise Bad(f"--process: {run.name} has no process {name!r}; {hint}")
    return wanted


def _pattern(text: str) -> re.Pattern[str] | None:
    from harbortui.cli.errors import Bad

    try:
        return re.compile(text) if text else None
    except re.error as error:
        where = f" at position {error.pos}" if error.pos is not None else ""
        raise Bad(f"--grep: {text!r} is no regular expression: {error.msg}{where}") from None


class _Printer:
    """Lines as a terminal or a pipe wants them; the colour of a process is the same everywhere."""

    def __init__(self, run: "Run", names: list[str], as_json: bool) -> None:
        self.as_json = as_json
        self.names = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
        self.wide = max([len(name) for name in names], default=10)

    def say(self, line: "Line") -> None:
        from harbortui.cli import text

        if self.as_json:
            print(text.dumps({"time": line.at, "process": line.process, "text": line.text}))
            return
        colour = self.names.setdefault(line.process, COLOURS[len(self.names) % len(COLOURS)])
        at = line.at[11:23] if text.on_terminal() else line.at
        process = text.paint(f"{text.plain(line.process):{self.wide}}", colour)
        print(f"{text.paint(at, 'dim')} {process} {line.text}")


def _until_over(run: "Run", coming: "Iterator[Line | None]") -> "Iterator[Line]":
    """What comes, until nothing that could write is left."""
    looked = time.monotonic()
    over = False
    for line in coming:
        if line is not None:
            yield line
            continue
        sys.stdout.flush()
        if over:
            return
        if time.monotonic() - looked > LOOK:
            over, looked = not writing(run), time.monotonic()


def writing(run: "Run") -> bool:
    """Whether anything that writes this run's files is alive."""
    from harbortui.supervisor import ledger
    from harbortui.supervisor.lock import supervised

    return supervised(run) or bool(ledger.read(run).living())
