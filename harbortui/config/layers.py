"""The layers of a config: the files that it extends, the file, the overrides; merged, with each key's origin kept.

Guarantees: a later layer wins key by key; tables are merged, everything else is replaced. A layer that cannot be read
does not hide the problems of the others.

On failure: problems are collected, not raised; `broken` says that something is missing from the merged data.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harbortui.config import toml
from harbortui.config.errors import SET, ConfigError, Problem, nearest
from harbortui.config.sentences import found

_LARGEST = 4 << 20


@dataclass(frozen=True)
class Layer:
    """One source of values. `text` is None for an override, which has no lines."""

    file: str
    text: str | None
    data: dict[str, Any]


@dataclass
class Layers:
    """The sources of a config, the last one winning."""

    main: str
    layers: list[Layer] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    broken: bool = False

    def merged(self) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for layer in self.layers:
            data = _merge(data, layer.data)
        data.pop("extends", None)
        return data

    def origin(self, path: toml.Path) -> Layer | None:
        """The layer that the value at a path came from; where there is no value, the one with most of the path."""
        best, deepest = None, 0
        for layer in reversed(self.layers):
            depth = _depth(layer.data, path)
            if depth > deepest:
                best, deepest = layer, depth
        return best

    def locate(self, complaints: Iterable[tuple[toml.Path, Problem]]) -> list[Problem]:
        """The problems with their file and line."""
        by_layer: dict[int, list[tuple[toml.Path, Problem]]] = {}
        for path, problem in complaints:
            origin = self.origin(path)
            by_layer.setdefault(-1 if origin is None else self.layers.index(origin), []).append((path, problem))
        placed = []
        for index, items in by_layer.items():
            layer = self.layers[index] if index >= 0 else Layer(self.main, None, {})
            lines = _lines(layer.text, [path for path, _ in items])
            placed += [replace(problem, file=layer.file, line=lines.get(path)) for path, problem in items]
        return placed

    def in_order(self, problems: Iterable[Problem]) -> list[Problem]:
        """The config first, line by line, then what it extends, the overrides, anything else."""
        files = list(dict.fromkeys([self.main, *(layer.file for layer in reversed(self.layers) if layer.text), SET]))

        def place(problem: Problem) -> tuple[int, bool, int]:
            index = files.index(problem.file) if problem.file in files else len(files)
            return index, problem.line is None, problem.line or 0

        return sorted(problems, key=place)


def read(path: Path, overrides: Sequence[str]) -> Layers:
    """The file, what it extends and the overrides."""
    layers = Layers(str(path))
    _read_chain(layers, str(path))
    for text in overrides:
        try:
            layers.layers.append(Layer(SET, None, override(text)))
        except ConfigError as error:
            layers.problems += error.problems
    return layers


def override(text: str) -> dict[str, Any]:
    """`a.b=c` as a document: c is a TOML value where it is one, else a string."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals:
        raise ConfigError([Problem(SET, None, "", f"found {key[:60]!r}, allowed: KEY=VALUE, such as run.seed=7")])
    try:
        text.encode()
        document = tomllib.loads(f"{key} = 0") if not re.search(r"[\n\r\[#]", key) else {}
    except (ValueError, RecursionError):
        document = {}
    names = _single(document)
    if not names:
        message = f"found {key[:60]!r} before the '=', allowed: a dotted key, such as run.seed"
        raise ConfigError([Problem(SET, None, "", message)])
    if len(names) > toml.DEEPEST:
        raise ConfigError([Problem(SET, None, "", f"nested deeper than {toml.DEEPEST} levels")])
    if names[0] == "extends":
        raise ConfigError([Problem(SET, None, "extends", "only a file can extend another; write it into the file")])
    data: Any = toml.value(value.strip())
    for name in reversed(names):
        data = {name: data}
    toml.check(data, SET)
    return dict(data)


def _single(document: dict[str, Any]) -> list[str]:
    names: list[str] = []
    inner: Any = document
    while isinstance(inner, dict):
        if len(inner) != 1:
            return []
        name, inner = next(iter(inner.items()))
        names.append(name)
    return names


def _read_chain(layers: Layers, start: str) -> None:
    shown, chain, names = start, [_real(start)], [start]
    while True:
        try:
            text = _text(shown)
            data = toml.read(text, shown)
        except ConfigError as error:
            layers.problems += error.problems
            layers.broken = True
            return
        layers.layers.insert(0, Layer(shown, text, data))
        if "extends" not in data:
            return
        parent = data["extends"]
        complaint = hint = None
        if not isinstance(parent, str) or not parent or not parent.isprintable():
            complaint = f"found {found(parent)}, allowed: the path of another TOML file, from the folder of this one"
        else:
            place = os.path.normpath(os.path.join(os.path.dirname(shown), parent))
            names.append(place)
            if _real(place) in chain:
                complaint = f"files extend each other: {' -> '.join(names)}; remove one of these"
            elif not os.path.isfile(place):
                hint = _near(place)
                complaint = f"found {parent!r}, which is no file: {place}"
        if complaint is not None:
            line = _lines(text, [("extends",)]).get(("extends",))
            layers.problems.append(Problem(shown, line, "extends", complaint, hint))
            layers.broken = True
            return
        shown = place
        chain.append(_real(place))


def _real(place: str) -> str:
    try:
        return os.path.realpath(place)
    except (OSError, ValueError):
        return place


def _text(shown: str) -> str:
    complaint, hint = "", None
    try:
        with open(shown, "rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) <= _LARGEST:
            return data.decode("utf-8-sig")
        complaint = "larger than 4 MiB; a config is a short TOML file"
    except FileNotFoundError:
        complaint, hint = "no such file", _near(shown)
    except IsADirectoryError:
        complaint = "a folder; name a TOML file in it"
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError([Problem(shown, line, "", "not UTF-8 text; save the file as UTF-8")]) from None
    except (OSError, ValueError) as error:
        complaint = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise ConfigError([Problem(shown, None, "", complaint, hint)])


def _near(place: str) -> str | None:
    folder, name = os.path.split(place)
    try:
        files = [entry for entry in os.listdir(folder or ".") if entry.endswith(".toml")]
    except (OSError, ValueError):
        return None
    best = nearest(name.removesuffix(".toml"), [file.removesuffix(".toml") for file in files])
    return os.path.join(folder, f"{best}.toml") if best else None


def _lines(text: str | None, paths: list[toml.Path]) -> dict[toml.Path, int]:
    if text is None:
        return {}
    from harbortui.config.lines import locate  # tomlkit, which a config without errors does not need

    return locate(text, paths)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below if isinstance(below, dict) else {}, value) if isinstance(value, dict) else value
    return merged


def _depth(data: Any, path: toml.Path) -> int:
    for depth, part in enumerate(path):
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return depth
    return len(path)
