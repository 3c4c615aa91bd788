"""On which line of a TOML text a key stands.

tomlkit keeps the text but tells no positions: so each key gets a comment of our own and is looked for in what tomlkit
then writes. Guarantees: a key that has no line of its own (a table that is only implied, an element of an array) gets
the line of the first thing in it, else of what it is in.

On failure: no line. tomlkit refuses some texts that the standard library reads, and a problem without a line is
better than none.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import tomlkit
from tomlkit.container import Container
from tomlkit.items import AbstractTable, AoT, Array, Item

from harbortui.config.toml import Path

Node = list[Any]
"""A table may stand in several places of a text; all of them are one node."""


def locate(text: str, paths: Iterable[Path]) -> dict[Path, int]:
    """The line, from 1, of each path that is in the text, or of the table that it should be in."""
    try:
        return _Marks(text).locate(list(paths))
    except Exception:
        return {}


class _Marks:
    def __init__(self, text: str) -> None:
        self.document = tomlkit.parse(text)
        self.stem = "#line"
        while self.stem in text:
            self.stem += "_"
        self.marks: dict[int, tuple[str, int]] = {}

    def locate(self, paths: list[Path]) -> dict[Path, int]:
        candidates = {path: list(self.candidates(path)) for path in paths}
        lines: dict[str, int] = {}
        for number, line in enumerate(tomlkit.dumps(self.document).split("\n"), start=1):
            for piece in line.split(f"{self.stem}:")[1:]:
                lines[piece.partition(";")[0]] = number
        return {
            path: found[0]
            for path, marks in candidates.items()
            if (found := [lines[mark] - height for mark, height in marks if mark in lines])
        }

    def candidates(self, path: Path) -> Iterator[tuple[str, int]]:
        nodes: list[Node] = [[self.document]]
        for part in path:
            child = _child(nodes[-1], part)
            if not child:
                break
            nodes.append(child)
        node = nodes[-1] if len(nodes) > 1 else []
        while node:
            yield from self.mark(node)
            node = _first(node)
        for node in reversed(nodes[1:]):
            yield from self.mark(node)

    def mark(self, node: Node) -> Iterator[tuple[str, int]]:
        for item in node:
            if not isinstance(item, Item) or isinstance(item, AoT):
                continue
            if id(item) not in self.marks:
                height = 0 if item.is_table() else item.as_string().count("\n")
                self.marks[id(item)] = (str(len(self.marks)), height)
                item.comment(f"{self.stem}:{self.marks[id(item)][0]};")
            yield self.marks[id(item)]


def _entries(item: Any) -> list[tuple[str | int, Any]]:
    if isinstance(item, AoT | Array):
        return list(enumerate(item.body if isinstance(item, AoT) else list.__iter__(item)))
    if isinstance(item, Container | AbstractTable):
        body = item.body if isinstance(item, Container) else item.value.body
        return [(key.key, value) for key, value in body if key is not None]
    return []


def _child(node: Node, part: str | int) -> Node:
    found = [value for item in node for key, value in _entries(item) if isinstance(part, str) and key == part]
    if isinstance(part, int):
        elements = [value for item in node for _, value in _entries(item) if isinstance(item, AoT | Array)]
        found = elements[part : part + 1]
    return found


def _first(node: Node) -> Node:
    return next(([value] for item in node for _, value in _entries(item)), [])
