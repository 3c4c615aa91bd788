"""Where the statements of a TOML text begin, also of one that is not TOML: the ground on which `syntax` explains.

Guarantees: linear in the text, and never raises. The scan ends at the first statement that is none.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SKIP = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\[^\n])*"|'[^'\n]*')"""
_PARTS = re.compile(_PART)
_DOTTED = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"\[(\[)?[ \t]*({_DOTTED})[ \t]*\](?(1)\])")
_KEY = re.compile(rf"({_DOTTED})[ \t]*=[ \t]*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""+'
    r"|'''(?:[^']|'(?!''))*'''+"
    r'|"(?!"")(?:[^"\\\n]|\\[^\n])*"'
    r"|'(?!'')[^'\n]*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^\"'#\[\]{}\n]+")
_COMMENT = re.compile(r"#[^\n]*")


@dataclass(frozen=True)
class Statement:
    """`kind`: `key`, `[`, `[[`, or empty where it is no statement. `path` is whole, its section included."""

    kind: str
    path: tuple[str, ...]
    start: int
    rest: int
    """Where the value begins, or what follows the header."""
    end: int
    open: tuple[str, int] | None = None
    """What is never closed (a quote, `[` or `{`), and where it was opened."""


def statements(text: str) -> Iterator[Statement]:
    at, section = 0, tuple[str, ...]()
    while True:
        at = _after(_SKIP, text, at)
        if at >= len(text):
            return
        line_end = _line_end(text, at)
        if header := _HEADER.match(text, at):
            section = _path(header[2])
            yield Statement("[[" if header[1] else "[", section, at, header.end(), line_end)
            at = line_end
        elif key := _KEY.match(text, at):
            end, opened = _value(text, key.end())
            yield Statement("key", (*section, *_path(key[1])), at, key.end(), end, opened)
            if opened:
                return
            at = end
        else:
            yield Statement("", section, at, at, line_end)
            return


def string_end(text: str, at: int) -> int | None:
    """Where the string that begins here ends."""
    found = _STRING.match(text, at)
    return found.end() if found else None


def _path(dotted: str) -> tuple[str, ...]:
    return tuple(_name(part) for part in _PARTS.findall(dotted))


def _name(part: str) -> str:
    if part[0] == '"':
        try:
            return str(json.loads(part))
        except ValueError:
            return part[1:-1]
    return part[1:-1] if part[0] == "'" else part


def _value(text: str, at: int) -> tuple[int, tuple[str, int] | None]:
    opened: list[tuple[str, int]] = []
    while at < len(text):
        char = text[at]
        if char == "\n" and not opened:
            return at, None
        if char in "\"'":
            if not (string := _STRING.match(text, at)):
                triple = text[at : at + 3] == char * 3
                return len(text), (char * 3 if triple else char, at)
            at = string.end()
        elif char == "#":
            at = _after(_COMMENT, text, at)
        elif char in "[{":
            opened.append((char, at))
            at += 1
        elif char in "]}\n":
            if char != "\n" and opened:
                opened.pop()
            at += 1
        else:
            at = _after(_PLAIN, text, at)
    return at, opened[0] if opened else None


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
