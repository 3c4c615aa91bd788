"""Words on a terminal or a pipe: colours, columns, ages, JSON.

Guarantees: colour only on a terminal, and not where NO_COLOR or TERM=dumb forbids it. Text that came from a run is
cleaned of control sequences by whoever hands it in (`supervisor.logtail.clean`); columns count what a terminal shows.
"""

import json
import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Sequence
from typing import Any

CODES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36",
}  # fmt: skip
GOOD = {"running": "green", "ready": "green", "finished": "green", "paused": "yellow", "pausing": "yellow"}
BAD = {"failed": "red", "lost": "red", "holding": "yellow", "backoff": "yellow", "suspended": "yellow"}
STATES = {**GOOD, **BAD}


def on_terminal() -> bool:
    return sys.stdout.isatty()


def coloured() -> bool:
    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


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


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows under a head, columns aligned; the last column is cut where the terminal ends. Cells hold no colours."""
    widths = [max(cells(row[i]) for row in [head, *rows]) for i in range(len(head))]
    room = width()
    lines = []
    for row in [head, *rows]:
        parts = []
        for i, cell in enumerate(row):
            pad = " " * (widths[i] - cells(cell))
            styled = state(cell) if row is not head else cell
            parts.append(pad + styled if i in right else styled + pad)
        before = sum(widths[:-1]) + 2 * (len(widths) - 1)
        last = len(row) - 1
        if before + cells(row[last]) > room:
            parts[last] = cut(row[last], max(room - before, 1))
        line = "  ".join(parts).rstrip()
        lines.append(paint(line, "bold") if row is head else line)
    return lines


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


def say_json(value: Any) -> None:
    """One document: indented for eyes, one line for pipes."""
    print(json.dumps(value, indent=2 if on_terminal() else None, ensure_ascii=False, default=str))
