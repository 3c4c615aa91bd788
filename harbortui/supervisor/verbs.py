"""The verbs: everything that can be asked of a running run, in one table for the CLI, the screens and the socket.

Guarantees: a request is checked against the table before it reaches the supervisor; `parse` returns its arguments
complete, or raises `BadRequest` with one sentence.
"""

import difflib
from dataclasses import dataclass, field
from typing import Any

PROTOCOL = 1


class BadRequest(Exception):
    """A request that the table does not allow."""


@dataclass(frozen=True)
class Argument:
    name: str
    help: str
    type: type = str
    default: Any = None
    choices: tuple[str, ...] = ()
    completes: str = ""

    @property
    def required(self) -> bool:
        return self.default is None


@dataclass(frozen=True)
class Verb:
    """`loses` says what is lost, for faces to ask before they send it; `waits` that `--wait` makes sense."""

    name: str
    help: str
    example: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Argument, ...] = field(default=())
    loses: str = ""
    waits: bool = False

    def all_arguments(self) -> tuple[Argument, ...]:
        return self.arguments + self.options


VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("ping", "Is the supervisor there? Answers with its pid and the run's state.", "harbortui status"),
        Verb(
            "pause",
            "Start no new episode (dispatch), or also hold those running at their next model call (generate).",
            "harbortui pause --level generate",
            options=(
                Argument(
                    "level",
                    "dispatch: running episodes finish; generate: they are held",
                    str,
                    "dispatch",
                    ("dispatch", "generate"),
                ),
            ),
            waits=True,
        ),
        Verb("resume", "Go on after a pause or a hold.", "harbortui resume", waits=True),
        Verb("checkpoint", "Take a checkpoint now.", "harbortui checkpoint --wait", waits=True),
        Verb(
            "stop",
            "Take a checkpoint and end the run.",
            "harbortui stop --drain",
            options=(
                Argument("drain", "let running episodes finish first", bool, False),
                Argument("now", "no checkpoint, no waiting", bool, False),
            ),
            loses="Running episodes are cancelled.",
            waits=True,
        ),
        Verb(
            "suspend",
            "Take a checkpoint, then free everything (processes, ports, GPUs); go on later with `run --resume`.",
            "harbortui suspend",
            loses="Running episodes are cancelled.",
            waits=True,
        ),
        Verb(
            "restart",
            "End one process and start it again.",
            "harbortui restart rollouts-0",
            arguments=(Argument("process", "name of the process", completes="process"),),
            loses="What the process has not yet handed on; its running episodes are given out again.",
            waits=True,
        ),
        Verb(
            "episode",
            "Cancel an episode, or put it back in the queue.",
            "harbortui episode cancel ep1-1-000042-0",
            arguments=(
                Argument("action", "cancel or requeue", choices=("cancel", "requeue")),
                Argument("id", "id of the episode", completes="episode"),
            ),
        ),
        Verb(
            "set",
            "Change a value that can change while the run goes on.",
            "harbortui set agent.temperature 0.8",
            arguments=(
                Argument("key", "dotted key of the config", completes="live-key"),
                Argument("value", "new value, written as in TOML"),
            ),
        ),
        Verb(
            "note",
            "Write a note into the run's journal.",
            'harbortui note "lowered the temperature"',
            arguments=(Argument("text", "the note"),),
        ),
    )
}


def parse(name: object, given: object) -> tuple[Verb, dict[str, Any]]:
    if not isinstance(name, str) or name not in VERBS:
        near = difflib.get_close_matches(str(name), VERBS, 1)
        raise BadRequest(
            f"no verb {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(VERBS)}")
        )
    verb = VERBS[name]
    if not isinstance(given, dict):
        raise BadRequest(f"{name}: arguments must be an object")
    known = {argument.name: argument for argument in verb.all_arguments()}
    for key in given:
        if key not in known:
            raise BadRequest(f"{name}: unknown argument {key!r}; allowed: {', '.join(known) or 'none'}")
    values: dict[str, Any] = {}
    for key, argument in known.items():
        value = given.get(key, argument.default)
        if value is None:
            raise BadRequest(f"{name}: {key} is missing: {argument.help}")
        if not isinstance(value, argument.type):
            raise BadRequest(f"{name}: {key} must be a {argument.type.__name__}, found {value!r}")
        if argument.choices and value not in argument.choices:
            raise BadRequest(f"{name}: {key} {value!r}; allowed: {', '.join(argument.choices)}")
        values[key] = value
    return verb, values
