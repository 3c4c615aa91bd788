"""What a user can cause, as a sentence and an exit code.

Guarantees: `explain` knows every exception of the lower layers that says something to a user, by name, so that none
of them must be imported to be recognised. What it does not know is a defect of ours, and keeps its traceback.
"""

import contextlib
import errno
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
    text = _value(error) or _option(error, path) or error.format_message()
    text = " ".join(text.split()).replace("Value error, ", "").replace(". Did you", "; did you").rstrip(".?")
    text = text.replace(". Choose from:", "; choose from:")
    text = text[:1].lower() + text[1:]
    name = path.removeprefix("harbortui").strip()
    return f"{name}: {text}; `{path} --help` tells more" if name else f"{text}; `{path} --help` tells more"


def _value(error: Any) -> str:
    """A value of the wrong kind or size: what was found, and what is allowed."""
    problems = getattr(error.__cause__, "errors", None)
    for problem in problems() if callable(problems) else []:
        kind, limits = str(problem.get("type", "")), problem.get("ctx") or {}
        whole = "integer" in problem.get("msg", "") or kind.startswith("int_")
        allowed = "a whole number" if whole else "a number"
        for key, words in (("ge", "from"), ("gt", "above"), ("le", "up to"), ("lt", "below")):
            allowed += f" {words} {limits[key]}" if key in limits else ""
        if limits.keys() & {"ge", "gt", "le", "lt"} or kind.startswith(("int_", "float_")):
            names = getattr(error.param, "opts", None) or [str(error.param.name).upper()]
            return f"{names[0]}: found {problem.get('input')!r}, allowed: {allowed}"
    return ""


def _option(error: Any, path: str) -> str:
    """An option that is not there, with one that is meant perhaps."""
    name = getattr(error, "option_name", None)
    if type(error).__name__ != "NoSuchOption" or not name:
        return ""
    if name == "--resume":
        return f"no such option: {name}; a run that has ended goes on with `harbortui run --resume RUN`"
    import difflib

    near = difflib.get_close_matches(name, getattr(error, "possibilities", None) or [], 1)
    return f"no such option: {name}" + (f"; did you mean {near[0]}?" if near else "")


def unwritable(error: OSError) -> str:
    """Why standard output cannot be written, or '' where the error is another's. What failed is tried once more: an
    unbuffered stream has lost what it held, so an end of line is tried there."""
    if error.filename or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
        return ""
    try:
        print(flush=True)
    except OSError as again:
        hush()
        return f"the output could not be written ({again.strerror})"
    return ""


def _os(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    remedy = {
        errno.ENOSPC: "; free some space and try again",
        errno.EACCES: "; it belongs to somebody else, or its permissions forbid it",
    }.get(error.errno or 0, "")
    return f"{where}{error.strerror}{remedy}"


def say(told: Told, as_json: bool) -> int:
    from harbortui.cli import text

    with contextlib.suppress(OSError):
        for line in told.sentence.splitlines():
            print(f"harbortui: {text.plain(line)}", file=sys.stderr)
    try:
        if as_json:
            body = {"error": told.sentence, "exit": told.code}
            print(text.dumps({**body, "problems": told.problems} if told.problems else body))
        sys.stdout.flush()
    except OSError:
        hush()
    return told.code


def hush() -> None:
    """After a broken pipe or a full disk: let nothing more be written, at the interpreter's end neither."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
