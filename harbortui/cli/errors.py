"""What a user can cause, as a sentence and an exit code.

Guarantees: `explain` knows every exception of the lower layers that says something to a user, by name, so that none
of them must be imported to be recognised. What it does not know is a defect of ours, and keeps its traceback.
"""

import contextlib
import errno
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

BAD, FAILED, INTERRUPTED = 2, 1, 130

_CODES = {
    "config.errors.ConfigError": BAD,
    "supervisor.plan.PlanError": BAD,
    "runs.layout.LayoutError": BAD,
    "backends.plans.NotThere": BAD,
    "supervisor.secrets.SecretsMissing": BAD,
    "supervisor.client.LaunchFailed": FAILED,
    "supervisor.client.NotControllable": FAILED,
    "supervisor.lock.Refused": FAILED,
    "runs.queries.base.IndexUnusable": FAILED,
    "cli.errors.Bad": BAD,
    "cli.errors.Failed": FAILED,
}


class Bad(Exception):
    """Bad input, in one sentence."""


class Failed(Exception):
    """What was asked for could not be done, in one sentence."""


@dataclass(frozen=True)
class Told:
    sentence: str
    code: int
    problems: list[dict[str, Any]]


def explain(error: BaseException) -> Told | None:
    for cls in type(error).__mro__:
        name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("harbortui.")
        if name in _CODES:
            problems = error.json()["problems"] if name == "config.errors.ConfigError" else []  # type: ignore[attr-defined]
            return Told(str(error), _CODES[name], problems)
    if hasattr(error, "format_message"):
        return Told(_usage(error), getattr(error, "exit_code", BAD), [])
    if type(error).__name__ == "Abort":
        return Told("aborted; nothing was done", FAILED, [])
    if isinstance(error, OSError) and error.errno is not None:
        return Told(_os(error), FAILED, [])
    return None


def _usage(error: Any) -> str:
    """A usage error of the command line, with the way to the help."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "") or "harbortui"
    text = error.format_message().strip().replace("Value error, ", "").replace(". Did you", "; did you").rstrip(".?")
    text = text[:1].lower() + text[1:]
    name = path.removeprefix("harbortui").strip()
    return f"{name}: {text}; `{path} --help` tells more" if name else f"{text}; `{path} --help` tells more"


def _os(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    remedy = {
        errno.ENOSPC: "; free some space and try again",
        errno.EACCES: "; it belongs to somebody else, or its permissions forbid it",
    }.get(error.errno or 0, "")
    return f"{where}{error.strerror}{remedy}"


def say(told: Told, as_json: bool) -> int:
    from harbortui.supervisor.logtail import clean

    try:
        for line in told.sentence.splitlines():
            print(f"harbortui: {clean(line)}", file=sys.stderr)
        if as_json:
            body = {"error": told.sentence, "exit": told.code}
            print(json.dumps({**body, "problems": told.problems} if told.problems else body))
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
    return told.code


def hush() -> None:
    """After a broken pipe: let nothing more be written, at the interpreter's end neither."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
