"""`RunConfig`: the one typed config of a run, and which of its keys can change while the run is live.

Guarantees: a config with only `[backend]` is whole; what a key allows is said once, here and in the sections, and
sentences, JSON Schema and `live_value` are derived from it.

On failure: `live_value` raises a `ConfigError` with one problem whose file is `set`.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from harbortui.config import sentences, toml
from harbortui.config.errors import ConfigError, Problem, nearest
from harbortui.config.machinery import Demo, Supervision
from harbortui.config.section import Section
from harbortui.config.sections import (
    Agent,
    Backend,
    Checkpoints,
    Environment,
    Learning,
    Model,
    Rollouts,
    Run,
    Server,
    Tasks,
    Wandb,
)


class RunConfig(Section):
    """The config of one HarborTUI run."""

    run: Run = Run()
    backend: Backend
    model: Model = Model()
    tasks: Tasks = Tasks()
    environment: Environment = Environment()
    agent: Agent = Agent()
    rollouts: Rollouts = Rollouts()
    learning: Learning = Learning()
    server: Server = Server()
    checkpoints: Checkpoints = Checkpoints()
    wandb: Wandb | None = None
    supervision: Supervision = Supervision()
    demo: Demo = Demo()
    prime_rl: dict[str, Any] = Field(default_factory=dict, description="Passed to Prime-RL untouched.")


@dataclass(frozen=True)
class Live:
    """A key that the verb `set` can change: its type and, as a sentence, its range."""

    type: type[int] | type[float]
    allowed: str
    check: TypeAdapter[Any]


def _live(section: type[Section], name: str) -> Live:
    field = section.model_fields[name]
    number = int if field.annotation is int else float
    kind: Any = Annotated[number, Field(strict=True), *field.metadata]
    check: TypeAdapter[Any] = TypeAdapter(kind, config={"allow_inf_nan": False})
    return Live(number, sentences.allowed(field), check)


LIVE: dict[str, Live] = {
    "rollouts.concurrency": _live(Rollouts, "concurrency"),
    "agent.max_turns": _live(Agent, "max_turns"),
    "agent.temperature": _live(Agent, "temperature"),
    "learning.learning_rate": _live(Learning, "learning_rate"),
    "demo.rate": _live(Demo, "rate"),
}


def keys(section: type[Section] = RunConfig, prefix: str = "") -> list[str]:
    """Every key that the schema knows, dotted; free tables and arrays of tables by their own name only."""
    found = []
    for name, field in section.model_fields.items():
        model, many = sentences.submodel(field.annotation)
        if model is not None and issubclass(model, Section) and not many:
            found += keys(model, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


def live_value(key: str, text: str) -> int | float:
    """The value that `set KEY TEXT` asks for, if that key can change now and allows it."""
    live = LIVE.get(key)
    if live is None:
        if key in keys():
            message, hint = f"fixed for the life of the run; allowed: {', '.join(LIVE)}", None
        else:
            hint = nearest(key, LIVE) or nearest(key.rpartition(".")[2], [name.rpartition(".")[2] for name in LIVE])
            hint = next((name for name in LIVE if hint and (name == hint or name.endswith(f".{hint}"))), None)
            message = "unknown key" if hint else f"unknown key; allowed: {', '.join(LIVE)}"
        raise ConfigError([Problem("set", None, key, message, hint)])
    value = toml.value(text)
    try:
        if not toml.fits(value):
            raise OverflowError
        return live.type(live.check.validate_python(value))
    except (ValidationError, OverflowError):
        message = f"found {sentences.found(value)}, allowed: {live.allowed}"
        raise ConfigError([Problem("set", None, key, message)]) from None
