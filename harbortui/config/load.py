"""Loads a config: one TOML file, what it extends, the overrides and `.env`, into one typed `RunConfig`.

Guarantees: what is returned is whole and valid, and `text` read back by `parse` gives the same config. No secret is in
`text`: a config that holds one is refused. The environment wins over `.env`.

On failure: a `ConfigError` with all problems of all sources at once. No other exception leaves this module for anything
that is in the files or the overrides. Nothing is written.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from pydantic import ValidationError

from harbortui.config import explain, layers, toml
from harbortui.config.dotenv import read_dotenv
from harbortui.config.errors import ConfigError, Problem
from harbortui.config.schema import RunConfig
from harbortui.config.secrets import is_secret_name, named, secret_values

_HEADER = "# The whole config of this run: defaults, extends and overrides are resolved; secrets are names only.\n\n"
_WEBHOOK = ("run", "notify", "webhook")


@dataclass(frozen=True)
class Loaded:
    """A config and what came with it."""

    config: RunConfig
    path: Path
    text: str
    """The resolved config, every default written out: the run's `run.toml`."""
    env: dict[str, str]
    """What `.env` says, whole; for the processes, where their environment does not say otherwise."""
    secrets: dict[str, str]
    """The variables of `.env` and those that the config names as `${NAME}`, with the values that hold."""
    redactions: tuple[str, ...]
    """The values that must not be shown, from `.env` and the environment."""
    missing: tuple[str, ...]
    """The variables that the config names and nobody has set: a run cannot start without them."""


def load(path: Path, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Loaded:
    """The config at `path` with `--set` overrides such as `rollouts.group_size=4`."""
    environ = os.environ if environ is None else environ
    sources = layers.read(path, overrides)
    problems = list(sources.problems)
    try:
        env = read_dotenv(path.parent / ".env")
    except ConfigError as error:
        env = {}
        problems += error.problems
    data = sources.merged()
    _name_after_file(data, path)
    config, complaints = _validate(data, whole=not sources.broken)
    problems += sources.locate(complaints)
    if config is None or problems:
        raise ConfigError(sources.in_order(problems))
    variables = {**env, **environ}
    names = _named(data)
    secrets = {name: variables[name] for name in [*env, *names] if name in variables}
    hidden = [variables[name] for name, secret in names.items() if secret and name in variables]
    return Loaded(
        config=config,
        path=path,
        text=_HEADER + toml.dumps({key: table for key, table in config.model_dump(exclude_none=True).items() if table}),
        env=env,
        secrets=secrets,
        redactions=tuple(dict.fromkeys([*secret_values(env), *secret_values(variables), *hidden])),
        missing=tuple(name for name in names if name not in variables),
    )


def parse(text: str, file: str = "run.toml") -> RunConfig:
    """The config in a run's `run.toml`."""
    sources = layers.Layers(file, [layers.Layer(file, text, toml.read(text, file))])
    config, complaints = _validate(sources.merged(), whole=True)
    if config is None or complaints:
        raise ConfigError(sources.in_order(sources.locate(complaints)))
    return config


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a config file, for editors."""
    schema = _without_null(RunConfig.model_json_schema())
    schema["properties"]["extends"] = {
        "title": "Extends",
        "description": "Another TOML file, from the folder of this one, whose values hold where this file has none.",
        "type": "string",
    }
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": ["extends"]}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "HarborTUI run config"}


def _without_null(schema: Any) -> Any:
    """TOML has no null: a key that may be None is one that may be absent."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _without_null(item)
        for key, item in schema.items()
        if key != "default" or not isinstance(item, NoneType | dict)
    }
    options = kept.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        options = [option for option in options if option != {"type": "null"}]
        rest = {key: item for key, item in kept.items() if key != "anyOf"}
        return {**rest, "anyOf": options} if len(options) > 1 else {**options[0], **rest}
    return kept


def _validate(data: dict[str, Any], whole: bool) -> tuple[RunConfig | None, list[explain.Complaint]]:
    config, invalid = None, []
    try:
        config = RunConfig.model_validate(data)
        invalid = explain.astray(config)
    except ValidationError as error:
        invalid = explain.invalid(error, data, whole)
    complaints: dict[toml.Path, Problem] = {}
    for path, problem in [*explain.secrets(data), *invalid, *explain.too_long(data)]:
        complaints.setdefault(path, problem)
    return config, list(complaints.items())


def _name_after_file(data: dict[str, Any], path: Path) -> None:
    run = data.setdefault("run", {})
    if isinstance(run, dict) and "name" not in run:
        run["name"] = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:64].rstrip(".") or "run"


def _named(data: dict[str, Any]) -> dict[str, bool]:
    """The variables that the config names, and whether what they hold is a secret."""
    names: dict[str, bool] = {}
    for path, value in toml.walk(data):
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        for name in named(value) if isinstance(value, str) else ():
            secret = is_secret_name(key) or is_secret_name(name) or path == _WEBHOOK
            names[name] = names.get(name, False) or secret
    return names
