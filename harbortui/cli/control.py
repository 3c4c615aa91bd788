"""The verbs as commands, made from the table of verbs: one command per verb, with its help, example and arguments.

A verb with arguments of its own takes the run as `--run`, one without takes it as its argument. Every command has
`--json` (`{"ok", "verb", "run", "request", "answer", "state"}`), those that can wait have `--wait` and `--timeout`,
those that lose something ask first on a terminal unless `--yes`. Exit 0 accepted (or, waited for, true), 1 refused
or failed, 2 for what is wrong by the run's own plan (a key or value that cannot be set, a process that is not there):
that is known before anybody is asked.
"""

import inspect
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harbortui.cli.options import Json, RunArgument, RunOption, complete_live_key, complete_planned
from harbortui.supervisor.verbs import VERBS, Argument, Verb

if TYPE_CHECKING:
    from harbortui.runs.layout import Run

HIDDEN = ("ping",)
COMPLETIONS: dict[str, Callable[..., list[str]]] = {"process": complete_planned, "live-key": complete_live_key}
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
    from harbortui.cli.label import label
    from harbortui.runs import layout
    from harbortui.supervisor import client

    found = layout.find(run)
    check(verb.name, arguments, found)
    name = label(found)
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        if why := _hopeless(found):
            raise client.NotControllable(why)
        print(lost(verb, arguments))
        typer.confirm(f"{verb.name} {name}?", abort=True)
    with client.connect(found) as connection:
        answer = connection.ask(verb.name, **arguments)
    body = {
        "ok": answer.ok, "verb": verb.name, "run": found.name, "request": answer.request, "answer": answer.answer,
        "state": "accepted" if answer.ok else "refused",
    }  # fmt: skip
    if answer.ok and not as_json:
        print(f"{name}: {text.plain(answer.answer)}", flush=True)
    if answer.ok and wait:
        body |= waited(found, answer.request, timeout)
        if body["ok"] and not as_json:
            print(f"{name}: {text.plain(str(body['answer']))}")
    if as_json:
        text.say_json(body)
    if not body["ok"]:
        if not as_json:
            print(f"harbortui: {name}: {text.plain(str(body['answer']))}", file=sys.stderr)
        raise typer.Exit(1)


def _hopeless(run: "Run") -> str:
    """Why nobody can obey, or ''."""
    from harbortui.supervisor import client
    from harbortui.supervisor.lock import supervised

    return "" if supervised(run) else client.uncontrollable(run)


def lost(verb: Verb, arguments: dict[str, Any]) -> str:
    """What is lost by this verb with these arguments, for the question."""
    if verb.name == "stop" and arguments.get("now"):
        return "Running episodes are cancelled; so is everything since the newest checkpoint."
    if verb.name == "stop" and arguments.get("drain"):
        return "Running episodes finish, then the run ends."
    return "Running episodes are cancelled." if verb.name == "stop" else verb.loses


def check(verb: str, arguments: dict[str, Any], run: "Run") -> None:
    """Bad input that can be told without the supervisor."""
    from harbortui.cli.errors import Bad
    from harbortui.config.errors import nearest
    from harbortui.supervisor import plan

    if verb == "stop" and arguments["drain"] and arguments["now"]:
        raise Bad("stop: --drain and --now exclude each other")
    if verb == "note" and not arguments["text"].strip():
        raise Bad("note: the text is empty")
    if verb not in ("set", "restart"):
        return
    try:
        found = plan.load(run.plan.read_bytes())
    except (OSError, plan.PlanError):
        return
    if verb == "restart":
        names = [spec.name for spec in found.processes]
        if (process := arguments["process"]) not in names:
            near = nearest(process, names)
            raise Bad(f"restart: {run.name} has no process {process!r}; " + _hint(near, names))
        return
    key, value = arguments["key"], arguments["value"]
    if key not in found.live:
        raise Bad(f"set: {key!r} cannot change while the run goes on; " + _hint(nearest(key, found.live), found.live))
    try:
        found.live[key].read(value)
    except ValueError:
        raise Bad(f"set: {key}: found {value!r}, allowed: {found.live[key].allowed()}") from None


def _hint(near: str | None, names: Iterable[str]) -> str:
    return f"did you mean {near!r}?" if near else f"there are: {', '.join(names) or 'none'}"


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
