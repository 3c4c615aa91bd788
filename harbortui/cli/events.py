"""`harbortui events`: what the processes of a run said happened, in time order.

Guarantees: `--json` prints each event as it was journaled, one object a line, with the `process` that told it; kinds
that this version does not know are printed too. Following ends by itself when nothing of the run is left to write.
"""

import json
import re
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harbortui.cli.options import Json, RunArgument, complete_kind

if TYPE_CHECKING:
    from harbortui.runs.layout import Run
    from harbortui.runs.merged import Told

FIRST = 20
COMMON = ("t", "m", "kind", "attempt", "demo", "version")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add(app: typer.Typer) -> None:
    example = "harbortui events --kind step --kind alarm --since 10m --json"
    app.command(epilog=f"Example: {example}", rich_help_panel="Look")(events)


def events(
    run: RunArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", "-k", metavar="KIND", help="Only this kind, or family of kinds (episode); many times.",
                     autocompletion=complete_kind),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="Not older than 30s, 10m, 2h, 1d, or a time in ISO format.")
    ] = "",
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", min=0, metavar="N", help="Only the last N; with -f 20 where nothing is said."),
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """What the processes said happened, merged in time order."""
    from harbortui.runs import layout
    from harbortui.runs.merged import merged

    found = layout.find(run)
    kinds, first = _kinds(kind or []), _moment(since)
    if follow and lines is None and not since:
        lines = FIRST
    if not follow:
        told = merged(found, kinds, first)
        return _say(told if lines is None else deque(told, maxlen=lines), as_json)
    held: deque[Told] | None = None if lines is None else deque(maxlen=lines)
    pause = _Pause(found)

    def quiet(seconds: float) -> None:
        nonlocal held
        _say(held or (), as_json)
        held = None
        pause(seconds)

    try:
        for one in merged(found, kinds, first, follow=True, sleep=quiet):
            if held is None:
                _say([one], as_json)
            else:
                held.append(one)
    except _Over:
        pass
    return None


class _Over(Exception):
    """Nothing of the run is left to write."""


class _Pause:
    """Between two looks: let what was printed out, and see whether anything more can come."""

    def __init__(self, run: "Run") -> None:
        self._run, self._last = run, False

    def __call__(self, seconds: float) -> None:
        from harbortui.cli.logs import writing

        sys.stdout.flush()
        if self._last:
            raise _Over
        self._last = not writing(self._run)
        time.sleep(seconds)


def _kind(event: Any) -> str:
    from harbortui.runs.events import Unknown, kind_of

    return event.kind if isinstance(event, Unknown) else kind_of(event)


def _kinds(asked: list[str]) -> set[str]:
    from harbortui.cli.errors import Bad
    from harbortui.config.errors import nearest
    from harbortui.runs.events import KINDS

    found: set[str] = set()
    for name in asked:
        matching = {kind for kind in KINDS if kind == name or kind.startswith(f"{name}.")}
        if not matching:
            near = nearest(name, KINDS)
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(KINDS)}"
            raise Bad(f"--kind: no kind of event {name!r}; {hint}")
        found |= matching
    return found


def _moment(since: str) -> float | None:
    from datetime import UTC, datetime

    from harbortui.cli.errors import Bad

    if not since:
        return None
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", since):
        return time.time() - float(ago[1]) * UNITS[ago[2]]
    try:
        when = datetime.fromisoformat(since)
    except ValueError:
        raise Bad(f"--since: found {since!r}, allowed: 30s, 10m, 2h, 1d, or a time (2026-01-31T12:00)") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _say(told: "Iterable[Told]", as_json: bool) -> None:
    import msgspec

    from harbortui.cli import text
    from harbortui.runs.events import Unknown

    for process, event in told:
        body = event.body if isinstance(event, Unknown) else msgspec.to_builtins(event)
        if as_json:
            print(text.dumps({"process": process, **body, "writer": process}))
            continue
        print("\n".join(_lines(process, event, body)))


def _lines(process: str, event: Any, body: dict[str, Any]) -> list[str]:
    """One line, and below it the last words of a process that died."""
    from harbortui.cli import text
    from harbortui.cli.lines import logfmt

    body = dict(body)
    if isinstance(body.get("died"), int | float):
        body["died"] = text.clock(body["died"]) if 0 <= body["died"] < 2**33 else body["died"]
    tail = body.pop("tail") if isinstance(body.get("tail"), list) else []
    rest = {key: value for key, value in body.items() if key not in COMMON and value not in ("", [], {})}
    if rest.get("process") == process:
        del rest["process"]
    rest = {key: json.dumps(value) if isinstance(value, dict | list) else value for key, value in rest.items()}
    if body.get("demo") is True:
        rest["demo"] = True
    at = text.clock(event.t)
    at = text.paint(at[11:23], "dim") if text.on_terminal() else at
    kind = text.paint(text.plain(_kind(event)), "cyan")
    head = f"{at} {text.plain(process):13} {kind} {logfmt(rest)}".rstrip()
    return [head, *(f"    {text.plain(str(line))}" for line in tail)]
