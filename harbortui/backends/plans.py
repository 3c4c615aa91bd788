"""From config to plan, by the name of the backend."""

from collections.abc import Callable

from harbortui.backends.demo import plan as demo
from harbortui.config.schema import RunConfig
from harbortui.runs.layout import Run
from harbortui.supervisor.plan import Plan


class NotThere(Exception):
    """A backend that this version does not have."""


_BACKENDS: dict[str, Callable[[RunConfig, Run], Plan]] = {"demo": demo.plan}


def available() -> tuple[str, ...]:
    """The backends of this version."""
    return tuple(_BACKENDS)


def missing_backend(name: str) -> str:
    """One sentence about a backend that is not there; empty where it is."""
    if name in _BACKENDS:
        return ""
    there = ", ".join(map(repr, _BACKENDS))
    return f"backend.name: {name!r} is not there in this version; only {there} is"


def plan_for(config: RunConfig, run: Run) -> Plan:
    """On failure: `NotThere`, or a `ConfigError` about what no process of the plan could do."""
    if sentence := missing_backend(config.backend.name):
        raise NotThere(sentence)
    return _BACKENDS[config.backend.name](config, run)
