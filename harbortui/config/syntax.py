"""What is wrong with a text that is not TOML, in the words of a user: what was found, what is allowed, the remedy.

The standard library says where it stopped; `scan` says in which statement that is. Guarantees: nothing is shown of a
value that is or could be a secret. On failure, and for what is not known here, the parser's own words are given.
"""

import re
from dataclasses import dataclass

from pydantic.fields import FieldInfo

from harbortui.config import sentences
from harbortui.config.errors import Problem, dotted
from harbortui.config.scan import Statement, statements, string_end
from harbortui.config.schema import RunConfig
from harbortui.config.secrets import is_secret_name, looks_secret

_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot redefine", "Cannot mutate")
_CURLY = "“”„‟«»‘’‚‛`´"
_WORDS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
_TOKEN = re.compile(r"[^\s,#\[\]{}]*")
_NUMBER = re.compile(r"[-+.]?\d")
_SPACED = re.compile(r"([A-Za-z0-9_.-]+(?:[ \t]+[A-Za-z0-9_.-]+)+)[ \t]*=")
_LONE = re.compile(r"[A-Za-z0-9_.-]+[ \t]*(?:#.*)?")
_LONGEST = 40


def explain(text: str, error: Exception, file: str) -> Problem:
    """The problem of a text that the standard library refuses."""
    text = text.replace("\r\n", "\n")
    place = _PLACE.search(str(error))
    reason = _PLACE.sub("", str(error))
    at = len(text)
    if place and place[1]:
        lines = text.split("\n")
        at = sum(len(line) + 1 for line in lines[: int(place[1]) - 1]) + int(place[2]) - 1
    before = [found for found in statements(text) if found.start <= at]
    saw = _Fault(text, reason, min(at, len(text)), before)
    told = saw.told() if before else None
    if told is None:
        line = text.count("\n", 0, min(at, len(text.rstrip()))) + 1
        return Problem(file, line, "", f"not TOML: {reason[:1].lower()}{reason[1:]}")
    return Problem(file, text.count("\n", 0, told.at) + 1, dotted(told.path), told.sentence, told.hint)


@dataclass(frozen=True)
class _Told:
    at: int
    path: tuple[str, ...]
    sentence: str
    hint: str | None = None


class _Fault:
    """One statement that is wrong, the last of those before the place where the parser stopped."""

    def __init__(self, text: str, reason: str, at: int, before: list[Statement]) -> None:
        self.text, self.reason, self.at, self.before = text, reason, at, before
        self.it = before[-1] if before else Statement("", (), 0, 0, 0)

    def told(self) -> _Told | None:
        it = self.it
        if it.kind and self.reason.startswith(_TWICE):
            return self.twice()
        if it.kind == "key":
            return self.value()
        line = self.text[it.start : it.end].strip(" \t")
        return self.header(line) if line.startswith("[") else self.no_statement(line)

    def twice(self) -> _Told:
        it, first = self.it, self.first()
        line = "" if first is None else f" on line {self.text.count(chr(10), 0, first.start) + 1}"
        if first is not None and first.path == it.path and first.kind == it.kind:
            if it.kind == "key":
                return _Told(it.start, it.path, f"stands twice, first{line}; keep one of them")
            name = f"[{dotted(it.path)}]"
            return _Told(
                it.start, (), f"the section {name} stands twice, first{line}; put all its keys under one {name}"
            )
        name = dotted(first.path) if first else ""
        named = f"[[{name}]]" if first and first.kind == "[[" else f"[{name}]" if first and first.kind == "[" else name
        by = f", as {named}{line}" if first else ""
        return _Told(it.start, it.path, f"is there already{by}; write all of it in one place")

    def first(self) -> Statement | None:
        """The earlier statement that this one repeats, else the one that it contradicts."""
        path, related = self.it.path, list[Statement]()
        for other in self.before[:-1]:
            if other.kind == "[[":  # a new element: what was in the one before it is no rival
                related = [one for one in related if one.path[: len(other.path)] != other.path or one.kind == "[["]
            if other.path == path[: len(other.path)] or path == other.path[: len(path)]:
                related.append(other)
        same = [one for one in related if one.path == path]
        exact = [one for one in same if one.kind == self.it.kind]
        section = next((len(one.path) for one in reversed(self.before[:-1]) if one.kind != "key"), 0)
        depth = section + 1 if self.it.kind == "key" else len(path)
        wider = [one for one in related if one.kind == "key" or len(one.path) >= depth]
        return next(iter(exact or same or wider), None)

    def value(self) -> _Told | None:
        it, text = self.it, self.text
        value = text[it.rest : it.end].strip()
        if not value or value[0] == "#":
            return _Told(it.start, it.path, f"no value after the '='{self.allowed()}")
        if it.open and it.open[1] == it.rest and it.open[0] not in "[{":
            return self.unclosed(it.open)
        where = it.rest if self.reason.startswith("Invalid value") and self.at < it.rest else self.at
        char = text[where : where + 1]
        if char in _CURLY and char:
            return self.curly(where)
        if value[0] in "\"'":
            return self.string(value[0])
        if value[0] in "[{":
            return self.bracket(where)
        return self.bare(value.split("\n")[0])

    def unclosed(self, opened: tuple[str, int]) -> _Told:
        quote, start = opened
        rest = self.text[start + len(quote) :].split("\n", 1)[0]
        if len(quote) == 1 and any(char in _CURLY for char in rest):
            return _Told(
                start, self.it.path, f"the string is not closed: typographic quotes do not; end it with {quote}"
            )
        line = " on the same line" if len(quote) == 1 else ""
        return _Told(start, self.it.path, f"the string is not closed; end it with {quote}{line}")

    def curly(self, where: int) -> _Told:
        char = self.text[where]
        return _Told(where, self.it.path, f"found the quote {char}, allowed: the straight quotes \" and '")

    def string(self, quote: str) -> _Told | None:
        it = self.it
        if self.reason.startswith(("Unescaped", "Invalid hex", "Escaped")):
            told = "a \\ between \" and \" begins an escape; write it as \\\\, or put the string between ' and '"
            return _Told(self.at, it.path, told)
        if self.reason.startswith("Illegal character"):
            code = ord(self.text[self.at]) if self.at < len(self.text) else 0
            return _Told(
                self.at, it.path, f'the string holds a control character; write it as \\u{code:04x} between " and "'
            )
        if self.reason.startswith("Expected newline") and string_end(self.text, it.rest) is not None:
            other = "'" if quote == '"' else '"'
            more = self.text[self.at : it.end].split("#")[0].strip()
            if more in (",", ";"):
                return _Told(self.at, it.path, f"found '{more}' after the value; remove it")
            told = f"text after the closing {quote}; a string with a {quote} in it goes between {other} and {other}"
            return _Told(self.at, it.path, told)
        return None

    def bracket(self, where: int) -> _Told | None:
        it, text = self.it, self.text
        token = _token(text, where)
        if it.open and it.open[0] == "[":
            return _Told(it.open[1], it.path, "the array is not closed; end it with ]")
        if it.open and it.open[0] == "{":
            return _Told(it.open[1], it.path, "the table is not closed; end it with } on the same line")
        if it.open:
            return self.unclosed(it.open)
        if self.reason.startswith("Duplicate inline"):
            name = self.reason.partition("'")[2].rpartition("'")[0]
            return _Told(self.at, it.path, f"{name} stands twice between {{ and }}; keep one of them")
        if self.reason.startswith("Unclosed array"):
            return _Told(self.at, it.path, f"found {self.shown(token)} where ',' or ']' is allowed")
        if self.reason.startswith("Invalid value") and token:
            return self.word(where, token, '; a string goes between " and "')
        if self.reason.startswith("Invalid value"):
            return _Told(where, it.path, f"a value is missing before {text[where : where + 1]!r}")
        if self.reason.startswith("Expected newline"):
            more = text[self.at : it.end].split("#")[0].strip()
            if more in (",", ";"):
                return _Told(self.at, it.path, f"found '{more}' after the value; remove it")
            return _Told(self.at, it.path, "text after the value; remove it, or put it on a line of its own")
        table = "allowed in { }: key = value, with commas between, all on one line, none at the end"
        return _Told(self.at, it.path, table)

    def bare(self, value: str) -> _Told:
        it = self.it
        value = value.split(" #")[0].strip()
        if value[0] == "=":
            return _Told(it.start, it.path, "a second '='; remove it")
        if not value.rstrip(",;"):
            return _Told(it.start, it.path, f"found {value[:1]!r} in the place of the value{self.allowed()}")
        ends = value.rstrip(",;").rstrip()
        complete = self.reason.startswith("Expected newline") and self.at - it.rest == len(ends)
        if complete and value != ends:
            return _Told(it.start, it.path, f"found {value[len(ends) :].strip()!r} after the value; remove it")
        for comment in (" //", " --", ";"):
            if comment in value and self.reason.startswith("Expected newline"):
                return _Told(it.start, it.path, f"found {comment.strip()!r} after the value; a comment begins with #")
        return self.word(it.start, value, "")

    def word(self, where: int, word: str, remedy: str) -> _Told:
        """A value without quotes that is none."""
        it = self.it
        low, path = word.casefold(), it.path
        if low in ("none", "null", "nil"):
            return _Told(where, path, f"found {word}, and TOML has no such value; leave the key out")
        field = _field(path)
        takes = sentences.allowed(field) if field else ""
        string = field is None or not re.match(r"a (whole )?number|true or false|a table", takes)
        if low in _WORDS and (field is None or takes == "true or false"):
            return _Told(where, path, f"found {word}, allowed: {takes or 'true or false'}", _WORDS[low])
        if not string or (field is None and _NUMBER.match(word)):
            number = _NUMBER.match(word) and field is None
            allowed = takes or 'a number such as 7 or 0.5, or a string between " and "' if number else takes
            return _Told(where, path, f"found {self.shown(word)}, allowed: {allowed}")
        shown = self.shown(word)
        remedy = remedy or (self.allowed() if field else '; a string goes between " and "')
        if shown != word or '"' in word or "\\" in word:
            return _Told(where, path, f'found {shown} without quotes; a string goes between " and "')
        return _Told(where, path, f"found {word} without quotes{remedy}", f'"{word}"')

    def shown(self, word: str) -> str:
        name = self.it.path[-1] if self.it.path else ""
        if is_secret_name(name) or looks_secret(word) or looks_secret(word.strip("\"'")):
            return "a value that is not shown"
        return word if len(word) <= _LONGEST else word[: _LONGEST - 3] + "..."

    def allowed(self) -> str:
        field = _field(self.it.path)
        return f", allowed: {sentences.allowed(field)}" if field else ', such as 7, true or "text"'

    def header(self, line: str) -> _Told:
        it = self.it
        double, close = ("[[", "]]") if line.startswith("[[") else ("[", "]")
        if it.kind:
            return _Told(it.start, (), f"text after the {close} of [{dotted(it.path)}]; put it on a line of its own")
        name = line.split("#")[0].strip().lstrip("[").rstrip("]").strip()
        if any(char in _CURLY for char in name):
            return _Told(
                it.start, (), "a section's name stands without quotes, or between straight ones; such as [run]"
            )
        if re.fullmatch(r"[A-Za-z0-9_.-]+", name) and not re.search(r"^\.|\.\.|\.$", name):
            return _Told(it.start, (), f"the {double} of a section is not closed", f"{double}{name}{close}")
        return _Told(it.start, (), "not the name of a section, allowed: [name] or [name.name], such as [run.budget]")

    def no_statement(self, line: str) -> _Told:
        start, wanted = self.it.start, "allowed: [section], key = value or # comment"
        name = re.match(r"[A-Za-z0-9_.-]+", line)
        section = self.it.path
        if looks_secret(line.split("=")[0]):
            return _Told(start, (), f"neither a section nor a key; {wanted}")
        if line[0] == "=":
            return _Told(start, (), "no key before the '='; allowed: key = value")
        if line.startswith(("//", ";", "--", "/*")):
            return _Told(start, (), f"found {line[: 1 if line[0] == ';' else 2]!r}; a comment begins with #")
        if any(char in _CURLY for char in line.split("=")[0]):
            return _Told(start, (), "found a typographic quote in the key; a key stands without quotes: key = value")
        if name and line[name.end() :].lstrip()[:1] == ":":
            return _Told(start, (*section, name[0]), f"found ':' after the key, allowed: '='; write {name[0]} = ...")
        if spaced := _SPACED.match(line):
            allowed = "one word of letters, digits, '_' and '-'"
            return _Told(start, section, f"found {spaced[1][:_LONGEST]!r} before the '=', allowed: {allowed}")
        if name and _LONE.fullmatch(line) and not looks_secret(name[0]):
            return _Told(start, (*section, name[0]), f"a key without a value; write {name[0]} = ...")
        if name and "=" not in line and line[name.end() :][:1].isspace():
            return _Told(start, (*section, name[0]), f"no '=' after the key; write {name[0]} = ...")
        if "=" in line and line[0] not in "{<\"'":
            return _Told(
                start, section, "not a key before the '='; allowed: letters, digits, '_' and '-', else in quotes"
            )
        return _Told(start, (), f"neither a section nor a key; {wanted}")


def _token(text: str, at: int) -> str:
    found = _TOKEN.match(text, at)
    return found[0] if found else ""


def _field(path: tuple[str, ...]) -> FieldInfo | None:
    """The field of the schema at a path; none in free tables and for sections."""
    model, field = RunConfig, None
    for index, part in enumerate(path):
        field = model.model_fields.get(part)
        inner = sentences.submodel(field.annotation)[0] if field else None
        if inner is None:
            return field if index == len(path) - 1 else None
        model = inner  # type: ignore[assignment]
    return None
