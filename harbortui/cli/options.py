"""Arguments that many commands share, and what the shell completes for them."""

from typing import Annotated

import typer


def complete_run(incomplete: str) -> list[str]:
    from harbortui.runs.layout import all_runs

    return [run.name for run in all_runs() if run.name.startswith(incomplete)]


def complete_planned(context: typer.Context, incomplete: str) -> list[str]:
    """The processes of the plan: those that can be restarted."""
    from harbortui.runs.layout import LayoutError, find
    from harbortui.supervisor import plan

    try:
        planned = plan.load(find(context.params.get("run")).plan.read_bytes()).processes
    except (LayoutError, plan.PlanError, OSError):
        return []
    return [spec.name for spec in planned if spec.name.startswith(incomplete)]


def complete_process(context: typer.Context, incomplete: str) -> list[str]:
    """Everything that has a log: the supervisor too."""
    from harbortui.runs.layout import LayoutError, find
    from harbortui.supervisor.logtail import processes

    planned = complete_planned(context, incomplete)
    try:
        logged = processes(find(context.params.get("run")))
    except LayoutError:
        return []
    return [*planned, *(name for name in logged if name.startswith(incomplete) and name not in planned)]


def complete_live_key(context: typer.Context, incomplete: str) -> list[str]:
    from harbortui.runs.layout import LayoutError, find
    from harbortui.supervisor import plan

    try:
        live = plan.load(find(context.params.get("run")).plan.read_bytes()).live
    except (LayoutError, plan.PlanError, OSError):
        return []
    return [key for key in live if key.startswith(incomplete)]


RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="Name or path of the run. Absent: the newest.", autocompletion=complete_run),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        "--run", "-r", metavar="RUN", help="Name or path of the run. Absent: the newest.", autocompletion=complete_run
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the config; may be given many times."),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable; the shape is in docs/cli.md.")]


def complete_kind(incomplete: str) -> list[str]:
    from harbortui.runs.events import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]
