"""What was found and what is allowed, in the words of a user: derived from the schema, so they cannot disagree.

Guarantees: no sentence shows a table's content or more than a few words of a value, and none spans lines.
"""

import datetime
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harbortui.config.section import Allowed

_LONGEST = 60


def found(value: Any) -> str:
    """`'eight' (string)`"""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        if not value:
            return "an empty array"
        if any(isinstance(item, dict | list) for item in value):
            return "an array of tables" if all(isinstance(item, dict) for item in value) else "a nested array"
        return f"[{_cut(', '.join(map(_show, value)))}] (array)"
    return f"{_cut(_show(value))} ({_kind(value)})"


def allowed(field: FieldInfo) -> str:
    """`a whole number >= 1`"""
    return _type(field.annotation, field.metadata)


def choices(field: FieldInfo) -> list[str]:
    """The words that a key allows, for did-you-mean; empty where it takes more than a list of words."""
    words = [word for rule in field.metadata if isinstance(rule, Allowed) for word in rule.words]
    return words or [word for member in _members(field.annotation) for word in _words(member)]


def submodel(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The section under a field, and whether the field is an array of them."""
    for member in _members(annotation):
        if get_origin(member) is list:
            inner = get_args(member)[0]
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                return inner, True
        elif isinstance(member, type) and issubclass(member, BaseModel):
            return member, False
    return None, False


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return ascii(value[:_LONGEST]) if not value.isprintable() else repr(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, int) and value.bit_length() > 4096:
        return hex(value)  # decimal digits without end cost time without end
    return repr(value)


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return "string"
        case int():
            return "whole number"
        case float():
            return "number"
        case _:
            return "date or time"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _members(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, UnionType):
        return [member for member in get_args(annotation) if member is not NoneType]
    return [annotation]


def _words(member: Any) -> list[str]:
    return [str(word) for word in get_args(member)] if get_origin(member) is Literal else []


def _type(annotation: Any, metadata: list[Any]) -> str:
    parts = []
    for member in _members(annotation):
        rules = [*metadata, *getattr(member, "__metadata__", ())]
        limits = _limits(rules)
        origin = get_origin(member)
        if sentence := next((rule.sentence for rule in rules if isinstance(rule, Allowed)), None):
            parts.append(sentence)
        elif origin is Literal:
            parts.append(", ".join(_words(member)))
        elif origin is list:
            inner, _ = submodel(member)
            parts.append("an array of tables" if inner else "an array of strings")
        elif origin is dict or (isinstance(member, type) and issubclass(member, BaseModel)):
            parts.append("a table")
        elif member is bool:
            parts.append("true or false")
        elif member is int:
            parts.append("a whole number" + _range(limits))
        elif member is float:
            parts.append("a number" + _range(limits))
        else:
            parts.append("a string" if not limits.get("min_length") else "a string that is not empty")
    return " or ".join(parts)


def _limits(metadata: list[Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for item in metadata:
        match item:
            case annotated_types.Ge(ge=ge):
                limits[">="] = ge
            case annotated_types.Gt(gt=gt):
                limits[">"] = gt
            case annotated_types.Le(le=le):
                limits["<="] = le
            case annotated_types.Lt(lt=lt):
                limits["<"] = lt
            case annotated_types.MinLen(min_length=length):
                limits["min_length"] = length
            case _:
                pass
    return limits


def _range(limits: dict[str, Any]) -> str:
    bounds = [f"{sign} {limits[sign]}" for sign in (">=", ">", "<=", "<") if sign in limits]
    return f" {' and '.join(bounds)}" if bounds else ""
