"""Words on a terminal or a pipe: colours, columns, ages, JSON.

Guarantees: colour only on a terminal, and not where NO_COLOR or TERM=dumb forbids it. Text that came from a run is
handed in through `plain`, which leaves nothing that moves a cursor or begins a line; JSON holds every character that a
terminal could obey as its escape. Columns count what a terminal shows, and a row of a table is one line of it.
"""

import json
import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Sequence
from typing import Any

from harbortui.supervisor.logtail import clean

_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FOLDED = re.compile(r"[\r\n\t\v\f\x85\u2028\u2029]+")
NARROW = 12
CODES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36",
}  # fmt: skip
GOOD = {"running": "green", "ready": "green", "finished": "green", "paused": "yellow", "pausing": "yellow"}
BAD = {"failed": "red", "lost": "red", "holding": "yellow", "backoff": "yellow", "suspended": "yellow"}
STATES = {**GOOD, **BAD}


def on_terminal() -> bool:
    return sys.stdout.isatty()


def dumb() -> bool:
    """A terminal on which no cursor moves."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def coloured() -> bool:
    return on_terminal() and not os.environ.get("NO_COLOR") and not dumb()


def plain(text: str) -> str:
    """Text for a place on one line: no control sequences, no line of its own, no half characters of file names."""
    shown = _FOLDED.sub(" ", clean(_FOLDED.sub("\n", text)))
    return shown.encode("utf-8", "backslashreplace").decode()


def paint(text: str, *styles: str) -> str:
    codes = ";".join(CODES[style] for style in styles if style)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and coloured() else text


def state(name: str) -> str:
    return paint(name, STATES.get(name, ""))


def width() -> int:
    """Columns of the terminal; on a pipe there is no limit worth cutting for."""
    return shutil.get_terminal_size().columns if on_terminal() else 1000


def cells(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, room: int) -> str:
    if cells(text) <= room:
        return text
    kept, used = "", 0
    for char in text:
        used += cells(char)
        if used > room - 1:
            break
        kept += char
    return kept + "…"


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), spare: Sequence[int] = ()
) -> list[str]:
    """Rows under a head, columns aligned. Where the terminal is too narrow columns are cut, or left out: first those
    that are `spare`, in that order. Cells hold no colours."""
    right = list(right)
    widths = {i: max(cells(row[i]) for row in [head, *rows]) for i in range(len(head))}
    _fit(widths, [i for i in widths if i not in right], list(spare), width())
    lines = []
    for row in [head, *rows]:
        parts = []
        for i, room in widths.items():
            shown = cut(row[i], room)
            pad = " " * (room - cells(shown))
            styled = state(shown) if row is not head else shown
            parts.append(pad + styled if i in right else styled + pad)
        line = "  ".join(parts).rstrip()
        lines.append(paint(line, "bold") if row is head else line)
    return lines


def _fit(widths: dict[int, int], words: list[int], spare: list[int], room: int) -> None:
    """Make columns narrower, or fewer, until they fit: words to some letters, spare columns, the rest."""

    def over() -> int:
        return sum(widths.values()) + 2 * (len(widths) - 1) - room

    def narrow(least: int) -> None:
        for i in sorted((i for i in words if i in widths), key=lambda i: -widths[i]):
            widths[i] = max(widths[i] - max(over(), 0), min(widths[i], least))

    narrow(NARROW)
    for i in spare:
        if over() > 0:
            del widths[i]
    narrow(4)
    while over() > 0 and len(widths) > 1:
        widths.popitem()
    if over() > 0:
        only = next(iter(widths))
        widths[only] = max(room, 1)


def age(seconds: float) -> str:
    """`42s`, `7m`, `3h20m`, `2d4h`."""
    left = max(0, int(seconds))
    if left < 60:
        return f"{left}s"
    if left < 3600:
        return f"{left // 60}m{left % 60:02d}s" if left < 600 else f"{left // 60}m"
    if left < 86400:
        return f"{left // 3600}h{left % 3600 // 60:02d}m"
    return f"{left // 86400}d{left % 86400 // 3600}h"


def clock(t: float) -> str:
    """A wall time as in the logs: UTC, to the millisecond."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t)) + f".{int(t * 1000) % 1000:03d}Z"


def number(value: float | None, form: str = ".3f") -> str:
    """A number, or nothing where it is unknown."""
    return "" if value is None else format(value, form)


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON in which letters of all languages stand as they are, and what a terminal could obey as its escape."""
    found = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", found)


def say_json(value: Any) -> None:
    """One document: indented for eyes, one line for pipes."""
    print(dumps(value, indent=2 if on_terminal() else None))
