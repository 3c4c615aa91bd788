"""Arguments that many commands share, and what the shell completes for them."""

from typing import Annotated

import typer


def complete_run(incomplete: str) -> list[str]:
    from harbortui.runs.layout import all_runs

    return [run.name for run in all_runs() if run.name.startswith(incomplete)]


def complete_process(context: typer.Context, incomplete: str) -> list[str]:
    from harbortui.runs.layout import LayoutError, find
    from harbortui.supervisor import plan
    from harbortui.supervisor.logtail import processes

    try:
        run = find(context.params.get("run"))
        planned = [spec.name for spec in plan.load(run.plan.read_bytes()).processes]
    except (LayoutError, plan.PlanError, OSError):
        return []
    return [name for name in [*planned, *sorted(set(processes(run)) - set(planned))] if name.startswith(incomplete)]


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
