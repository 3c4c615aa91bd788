"""What is wrong with a config: every problem names file, line, key, what was found and what is allowed.

Guarantees: `str(problem)` is one line whatever the file contained, and shows no value of a key that looks like a
secret. A `ConfigError` carries every problem that was found, in the order of the files, never only the first.
"""

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

SET = "--set"
"""The file named by problems with an override."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Problem:
    """One thing to mend. `line` is None where no line is to blame (a missing file, an override)."""

    file: str
    line: int | None
    key: str
    message: str
    did_you_mean: str | None = None

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f" {self.key}:" if self.key else ""
        hint = f"; did you mean {self.did_you_mean}?" if self.did_you_mean else ""
        return one_line(f"{where}:{key} {self.message}{hint}")

    def json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "line": self.line,
            "key": self.key or None,
            "message": self.message,
            "did_you_mean": self.did_you_mean,
        }


class ConfigError(Exception):
    """Bad input: one or more problems, each with its remedy. Commands exit with 2."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(*self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def json(self) -> dict[str, Any]:
        return {"problems": [problem.json() for problem in self.problems]}


def dotted(path: Iterable[str | int]) -> str:
    """A key as it is written in TOML; elements of an array are counted from 0."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        name = part if _BARE.fullmatch(part) else json.dumps(part)
        text += f".{name}" if text else name
    return text


def one_line(text: str) -> str:
    """The text with everything that could break a line or move a cursor written as an escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def nearest(found: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that the user most likely meant."""
    by_case: dict[str, str] = {}
    for word in allowed:
        by_case.setdefault(word.casefold().replace("-", "_"), word)
    close = difflib.get_close_matches(found[:100].casefold().replace("-", "_"), by_case, n=1, cutoff=0.6)
    return by_case[close[0]] if close else None
