"""TOML in and out: read with the standard library, written so that reading gives the same values back.

Guarantees: whatever is read here can be merged, checked and shown: tables are no deeper than `DEEPEST`. It can be
written again where its whole numbers `fit`.

On failure: `read` raises a `ConfigError` that names file and line; nothing else leaves it.
"""

import datetime
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from harbortui.config.errors import ConfigError, Problem, dotted

DEEPEST = 64
_DIGITS = re.compile(r"[0-9][0-9_]{4299,}")
WHOLE = "a whole number that fits in 64 bits"
_BARE = re.compile(r"[A-Za-z0-9_-]+")

Path = tuple[str | int, ...]


def read(text: str, file: str) -> dict[str, Any]:
    """The document, or a `ConfigError` naming the line that is not TOML."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        from harbortui.config import syntax  # which needs the schema, and is needed for nothing else

        raise ConfigError([syntax.explain(text, error, file)]) from None
    except RecursionError:
        raise ConfigError([Problem(file, None, "", f"nested deeper than {DEEPEST} levels")]) from None
    except ValueError:
        long = _DIGITS.search(text)
        line = text.count("\n", 0, long.start()) + 1 if long else None
        raise ConfigError([Problem(file, line, "", f"found a number of very many digits, allowed: {WHOLE}")]) from None
    check(data, file)
    return data


def check(data: dict[str, Any], file: str) -> None:
    """Refuses what could not be handled further on: tables too deep."""
    for path, _ in walk(data):
        if len(path) > DEEPEST:
            key = dotted(path[:3]) + "..."
            raise ConfigError([Problem(file, None, key, f"nested deeper than {DEEPEST} levels")])


def fits(item: Any) -> bool:
    """Whether a value can be written again: whole numbers are 64 bits long."""
    return not isinstance(item, int) or -(2**63) <= item < 2**63


def value(text: str) -> Any:
    """The TOML value that the text is; where it is none, the text itself."""
    if "\n" in text or "\r" in text:
        return text
    try:
        data = read(f"value = {text}", "")
    except ConfigError:
        return text
    return data["value"] if list(data) == ["value"] else text


def walk(data: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Every value with its path, tables and arrays before what is in them; ends below `DEEPEST`."""
    stack: list[tuple[Path, Any]] = [((key,), item) for key, item in reversed(data.items())]
    while stack:
        path, item = stack.pop()
        yield path, item
        if len(path) > DEEPEST:
            continue
        if isinstance(item, dict):
            stack += [((*path, key), inner) for key, inner in reversed(item.items())]
        elif isinstance(item, list):
            stack += [((*path, index), item[index]) for index in reversed(range(len(item)))]


def dumps(data: dict[str, Any]) -> str:
    """The document as TOML text."""
    lines: list[str] = []
    _table(data, "", lines)
    return "\n".join(lines).strip("\n") + "\n"


def _table(table: dict[str, Any], prefix: str, lines: list[str]) -> None:
    inner = {key: item for key, item in table.items() if _is_table(item) or _is_tables(item)}
    lines += [f"{_key(key)} = {_value(item)}" for key, item in table.items() if key not in inner]
    for key, item in inner.items():
        name = f"{prefix}{_key(key)}"
        for element, header in [(item, f"[{name}]")] if _is_table(item) else [(one, f"[[{name}]]") for one in item]:
            if header.startswith("[[") or not all(_is_table(value) or _is_tables(value) for value in element.values()):
                lines += ["", header]
            _table(element, f"{name}.", lines)


def _is_table(item: Any) -> bool:
    return isinstance(item, dict) and bool(item)


def _is_tables(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(element, dict) for element in item)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(item: Any) -> str:
    match item:
        case bool():
            return "true" if item else "false"
        case str():
            return _string(item)
        case int() | float():
            return repr(item)
        case datetime.datetime() | datetime.date() | datetime.time():
            return item.isoformat()
        case list():
            return f"[{', '.join(map(_value, item))}]"
        case dict():
            pairs = ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in item.items())
            return f"{{ {pairs} }}" if pairs else "{}"
    raise TypeError(f"TOML has no {type(item).__name__}")
