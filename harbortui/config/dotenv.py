"""Reads `.env`: variables, never commands.

`NAME=value` per line, `export` before it and blanks around `=` allowed. A bare value ends at the line or at ` #`;
'single quotes' hold anything as it is; "double quotes" know \\n \\r \\t \\" \\\\ \\$; both may span lines. Nothing is
substituted and nothing is run: `$(date)` and `${HOME}` stay text. A name given twice has its last value.

On failure: a `ConfigError` with every bad line, by number and by what it lacks, never by what it holds.
"""

import re
from pathlib import Path

from harbortui.config.errors import ConfigError, Problem

_LARGEST = 1 << 20
_SKIP = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=")
_QUOTE = re.compile(r"""[ \t]*(['"])""")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = re.compile(r"([^\n]*?)(?=[ \t]+#|[ \t]*(?:\n|\Z))")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def read_dotenv(path: Path) -> dict[str, str]:
    """The variables of the file; none where there is no file."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ConfigError([Problem(str(path), None, "", "larger than 1 MiB; a .env holds NAME=value lines")])
        text = data.decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError([Problem(str(path), line, "", "not UTF-8 text; save it as UTF-8")]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([Problem(str(path), None, "", f"cannot be read: {reason}")]) from None
    return _Reader(str(path), text.replace("\r\n", "\n")).read()


class _Reader:
    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.at = file, text, 0
        self.problems: list[Problem] = []

    def read(self) -> dict[str, str]:
        variables: dict[str, str] = {}
        while self.at < len(self.text):
            if blank := _SKIP.match(self.text, self.at):
                self.at = blank.end()
                continue
            start = self.at
            if not (name := _NAME.match(self.text, self.at)):
                self.refuse(start, "", "not a variable; allowed: NAME=value, export NAME=value, # comment")
                continue
            self.at = name.end()
            value = self.value()
            if value is None:
                self.refuse(start, name[1], "the quote is never closed; close it, or quote with the other kind")
            elif not (end := _SKIP.match(self.text, self.at)):
                self.refuse(start, name[1], "text after the closing quote; put the whole value into one pair of quotes")
            elif "\0" in value:
                self.refuse(start, name[1], "the value holds a NUL byte, which no environment can carry")
            else:
                variables[name[1]] = value
                self.at = end.end()
        if self.problems:
            raise ConfigError(self.problems)
        return variables

    def value(self) -> str | None:
        if quote := _QUOTE.match(self.text, self.at):
            single = quote[1] == "'"
            match = (_SINGLE if single else _DOUBLE).match(self.text, quote.start(1))
            if match is None:
                return None
            self.at = match.end()
            return match[1] if single else _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[0]), match[1])
        bare = _BARE.match(self.text, self.at)
        assert bare is not None
        self.at = bare.end()
        return bare[1].strip(" \t")

    def refuse(self, start: int, name: str, message: str) -> None:
        line = self.text.count("\n", 0, start) + 1
        self.problems.append(Problem(self.file, line, name, message))
        end = self.text.find("\n", start)
        self.at = len(self.text) if end < 0 else end + 1
