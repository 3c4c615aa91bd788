"""From a command line to one command and an exit code.

Guarantees: only the family of commands that is asked for is imported, and what it needs only when it runs. Whatever
a user can cause ends in one sentence on standard error and an exit code, never in a traceback: 0 done, 1 failed or
refused, 2 bad input, 130 interrupted. With `--json` the sentence is also on standard output, as `{"error": ...}`.
A reader that goes away (`| head`) ends the command quietly, with 0. Output that cannot be written (a full disk) is said
on standard error, exit code 1: what was done stays done.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harbortui.cli import errors

if TYPE_CHECKING:
    import typer

FAMILIES = {
    "run": ("run", "train", "demo", "attach", "supervise"),
    "look": ("ps", "status", "metrics"),
    "logs": ("logs",),
    "events": ("events",),
    "control": (
        "pause", "resume", "checkpoint", "stop", "suspend", "restart", "episode", "set", "note",
    ),
    "config": ("config",),
    "index": ("index",),
    "clean": ("clean",),
    "doctor": ("doctor",),
}  # fmt: skip


def build(only: str | None = None) -> "typer.Typer":
    """The whole program, or as much of it as the command `only` needs."""
    import typer

    app = typer.Typer(
        name="harbortui",
        help="Mission control for reinforcement learning of LLM agents on Harbor tasks.",
        epilog="Example: harbortui demo --seconds 20",
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", "-V", help="Print the version and exit."),
    ) -> None:
        if version:
            from harbortui import __version__

            print(f"harbortui {__version__}")
            raise typer.Exit
        if context.invoked_subcommand is None:
            print(context.get_help())

    for family, commands in FAMILIES.items():
        if only is None or only in commands:
            importlib.import_module(f"harbortui.cli.{family}").add(app)
    return app


def main(argv: Sequence[str]) -> int:
    try:
        code = _run(list(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        errors.hush()
        return 0
    except SystemExit as ended:  # that is how Typer's own parser ends at a broken pipe
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        errors.hush()
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if isinstance(error, OSError) and (why := errors.unwritable(error)):
            return errors.say(errors.Told(f"{why}; what was done stays done", errors.FAILED, []), as_json=False)
        told = errors.explain(error)
        if told is None:
            raise
        return errors.say(told, as_json="--json" in argv)
    return code


def _run(argv: list[str]) -> int:
    completing = "_HARBORTUI_COMPLETE" in os.environ
    if argv and argv[0] in ("status", "ps") and not completing:
        from harbortui.cli.status import quick

        if quick(argv):
            return 0
    known = {command for commands in FAMILIES.values() for command in commands}
    only = argv[0] if argv and argv[0] in known and not completing else None
    code = build(only)(args=argv, prog_name="harbortui", standalone_mode=False)
    return code if isinstance(code, int) else 0
