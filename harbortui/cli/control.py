"""The verbs as commands, made from the table of verbs: one command per verb, with its help, example and arguments.

A verb with arguments of its own takes the run as `--run`, one without takes it as its argument. Every command has
`--json` (`{"ok", "verb", "run", "request", "answer", "state"}`), those that can wait have `--wait` and `--timeout`,
those that lose something ask first on a terminal unless `--yes`. Exit 0 accepted (or, waited for, true), 1 refused
or failed.
"""

import inspect
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harbortui.cli.options import Json, RunArgument, RunOption, complete_live_key, complete_process
from harbortui.supervisor.verbs import VERBS, Argument, Verb

if TYPE_CHECKING:
    from harbortui.runs.layout import Run

HIDDEN = ("ping",)
COMPLETIONS: dict[str, Callable[..., list[str]]] = {"process": complete_process, "live-key": complete_live_key}
POLL = 0.05
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is true, or failed.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0, metavar="SECONDS", help="Longest wait.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def add(app: typer.Typer) -> None:
    for verb in VERBS.values():
        if verb.name not in HIDDEN:
            app.command(verb.name, help=_help(verb), epilog=f"Example: {verb.example}", rich_help_panel="Control")(
                command(verb)
            )


def _help(verb: Verb) -> str:
    return verb.help + (f"\n\nLost by it: {verb.loses}" if verb.loses else "")


def command(verb: Verb) -> Callable[..., None]:
    """A function with the signature that the verb's arguments ask for."""

    def speak(**given: Any) -> None:
        said = {argument.name: given[argument.name] for argument in verb.all_arguments()}
        asked = {key: given[key] for key in ("run", "as_json")}
        perform(verb, said, wait=given.get("wait", False), timeout=given.get("timeout", 0.0),
                yes=given.get("yes", True), **asked)  # fmt: skip

    parameters = [_parameter(argument, positional=True) for argument in verb.arguments]
    parameters.append(_keyword("run", RunOption if verb.arguments else RunArgument, None))
    parameters += [_parameter(argument, positional=False) for argument in verb.options]
    if verb.waits:
        parameters += [_keyword("wait", Wait, False), _keyword("timeout", Timeout, 600.0)]
    if verb.loses:
        parameters.append(_keyword("yes", Yes, False))
    parameters.append(_keyword("as_json", Json, False))
    speak.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    speak.__annotations__ = {p.name: p.annotation for p in parameters}
    return speak


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parameter(argument: Argument, positional: bool) -> inspect.Parameter:
    kind: Any = Literal[argument.choices] if argument.choices else argument.type
    if positional:
        info = typer.Argument(
            help=argument.help, metavar=argument.name.upper(), autocompletion=COMPLETIONS.get(argument.completes)
        )
        return _keyword(argument.name, Annotated[kind, info], inspect.Parameter.empty)
    name = f"--{argument.name}"
    return _keyword(argument.name, Annotated[kind, typer.Option(name, help=argument.help)], argument.default)


def perform(
    verb: Verb, arguments: dict[str, Any], run: str | None, as_json: bool, wait: bool, timeout: float, yes: bool
) -> None:
    """Ask, print the answer, and with `wait` the end of it."""
    from harbortui.cli import text
    from harbortui.runs import layout
    from harbortui.supervisor import client
    from harbortui.supervisor.logtail import clean

    found = layout.find(run)
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        print(verb.loses)
        typer.confirm(f"{verb.name} {found.name}?", abort=True)
    with client.connect(found) as connection:
        answer = connection.ask(verb.name, **arguments)
    body = {
        "ok": answer.ok, "verb": verb.name, "run": found.name, "request": answer.request, "answer": answer.answer,
        "state": "accepted" if answer.ok else "refused",
    }  # fmt: skip
    if answer.ok and not as_json:
        print(f"{found.name}: {clean(answer.answer)}", flush=True)
    if answer.ok and wait:
        body |= waited(found, answer.request, timeout)
        if body["ok"] and not as_json:
            print(f"{found.name}: {clean(str(body['answer']))}")
    if as_json:
        text.say_json(body)
    if not body["ok"]:
        if not as_json:
            print(f"harbortui: {found.name}: {clean(str(body['answer']))}", file=sys.stderr)
        raise typer.Exit(1)


def waited(run: "Run", request: str, timeout: float) -> dict[str, Any]:
    """What became of a request, as the supervisor's journal tells it."""
    from harbortui.cli.stream import Stream
    from harbortui.runs.events import OperatorAction
    from harbortui.supervisor.lock import supervised

    stream, end = Stream(run, ["supervisor"]), time.monotonic() + timeout
    while True:
        alive = supervised(run)
        for _, event in stream.fresh():
            if isinstance(event, OperatorAction) and event.request == request and event.state in ("true", "failed"):
                return {"ok": event.state == "true", "state": event.state, "answer": event.answer}
        if not alive:
            return {"ok": False, "state": "failed", "answer": "the supervisor is gone, and it did not become true"}
        if time.monotonic() > end:
            return {"ok": False, "state": "timeout", "answer": f"not true after {timeout:g} s; it may yet become so"}
        time.sleep(POLL)
