"""Turns what pydantic and the rules found into problems that a user can mend.

Guarantees: one problem per key, said with what was found and what is allowed; the value of a secret is never shown.
"""

from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from harbortui.config import sentences, toml
from harbortui.config.errors import Problem, dotted, nearest
from harbortui.config.schema import RunConfig, keys
from harbortui.config.secrets import is_secret_name, looks_secret, named

Complaint = tuple[toml.Path, Problem]
_FEW, _MOST = 4, 8


def invalid(error: ValidationError, data: dict[str, Any], whole: bool) -> list[Complaint]:
    """What the schema refuses. Without the whole data (a file could not be read) nothing is called missing."""
    complaints: dict[toml.Path, Problem] = {}
    errors = error.errors(include_url=False)
    whole = whole and not any(item["type"] == "extra_forbidden" and _late(item["loc"]) for item in errors)
    for item in errors:
        path, field, model = _place(item["loc"])
        context = item.get("ctx", {})
        if item["type"] == "harbortui":
            path = (*path, context["key"]) if "key" in context else path
            message, hint = str(context["sentence"]), None
        elif item["type"] == "missing":
            if not whole:
                continue
            path, field = _first_missing(path, field)
            message, hint = f"missing; allowed: {sentences.allowed(field)}" if field else "missing", None
        elif field is None:
            message, hint = _unknown(path, model)
        else:
            value = _at(data, path)
            shown = "a value that is not shown" if _hidden(path, value) else sentences.found(value)
            message = f"found {shown}, allowed: {sentences.allowed(field)}"
            hint = nearest(value, sentences.choices(field)) if isinstance(value, str) else None
        complaints.setdefault(path, Problem("", None, dotted(path), message, hint))
    return list(complaints.items())


def secrets(data: dict[str, Any]) -> list[Complaint]:
    """The secrets that were written into the config itself."""
    complaints = []
    for path, value in toml.walk(data):
        if isinstance(value, str) and value and _hidden(path, value) and (looks_secret(value) or not named(value)):
            variable = "".join(char if char.isascii() and char.isalnum() else "_" for char in _name(path)).upper()
            message = f'looks like a secret; put it into .env and name the variable: "${{{variable}}}"'
            complaints.append((path, Problem("", None, dotted(path), message)))
    return complaints


def too_long(data: dict[str, Any]) -> list[Complaint]:
    """The whole numbers that no TOML file can hold."""
    return [
        (path, Problem("", None, dotted(path), f"found {sentences.found(value)}, allowed: {toml.WHOLE}"))
        for path, value in toml.walk(data)
        if not toml.fits(value)
    ]


def astray(config: RunConfig) -> list[Complaint]:
    """The faults of a demo that would happen to nobody."""
    complaints: list[Complaint] = []
    for index, fault in enumerate(config.demo.faults) if config.backend.name == "demo" else ():
        if fault.process not in (names := config.demo.processes()):
            path = ("demo", "faults", index, "process")
            shown = names if len(names) <= _MOST else [*names[:4], "...", names[-1]]
            message = f"found {sentences.found(fault.process)}, allowed: {', '.join(shown)}"
            complaints.append((path, Problem("", None, dotted(path), message, nearest(fault.process, names))))
    return complaints


def _late(path: toml.Path) -> bool:
    return len(path) > 1 and path[-1] == "extends"


def _hidden(path: toml.Path, value: Any) -> bool:
    return is_secret_name(_name(path)) or (isinstance(value, str) and looks_secret(value))


def _name(path: toml.Path) -> str:
    return next((part for part in reversed(path) if isinstance(part, str)), "")


def _place(loc: tuple[int | str, ...]) -> tuple[toml.Path, FieldInfo | None, type[BaseModel]]:
    """The path in the data (pydantic adds the branches of unions), its field and the section it is in."""
    model: type[BaseModel] = RunConfig
    path: toml.Path = ()
    field: FieldInfo | None = None
    parts = iter(loc)
    for part in parts:
        path = (*path, part)
        field = model.model_fields.get(str(part))
        if field is None:
            break
        inner, many = sentences.submodel(field.annotation)
        if inner is None:
            break
        if many:
            index = next(parts, None)
            if index is None:
                break
            path = (*path, index)
        model = inner
    return path, field, model


def _first_missing(path: toml.Path, field: FieldInfo | None) -> tuple[toml.Path, FieldInfo | None]:
    model = sentences.submodel(field.annotation)[0] if field else None
    for name, inner in model.model_fields.items() if model else ():
        if inner.is_required():
            return (*path, name), inner
    return path, field


def _unknown(path: toml.Path, model: type[BaseModel]) -> tuple[str, str | None]:
    name = str(path[-1])
    if _late(path):
        return "must stand before the first [section], at the top of the file", None
    siblings = [*model.model_fields, *(["extends"] if model is RunConfig else [])]
    known = dict.fromkeys(part for key in keys() for part in (key.rpartition(".")[0], key))
    elsewhere = [key for key in known if key.endswith(f".{name}")]
    below = [key for key in elsewhere if key.startswith(f"{dotted(path[:-1])}.")] if len(path) > 1 else []
    elsewhere = below or elsewhere
    likely = " or ".join(elsewhere) if len(elsewhere) <= _FEW else None
    close = nearest(name, siblings)
    if likely and (len(elsewhere) == 1 or len(path) == 1 or not close):
        return "unknown key", likely
    if close:
        return "unknown key", close
    return f"unknown key; allowed: {', '.join(siblings)}", None


def _at(data: Any, path: toml.Path) -> Any:
    for part in path:
        data = data[part]
    return data
