"""`harbortui index rebuild`: the read model of a run, derived from its journals anew."""

import time

import typer

from harbortui.cli.options import Json, RunArgument


def add(app: typer.Typer) -> None:
    family = typer.Typer(
        help="The read model that is derived from the journals.", epilog="Example: harbortui index rebuild demo"
    )
    family.command(epilog="Example: harbortui index rebuild demo")(rebuild)
    app.add_typer(family, name="index", rich_help_panel="Keep house")

    @family.callback()
    def only() -> None:
        """The read model that is derived from the journals."""


def rebuild(run: RunArgument = None, as_json: Json = False) -> None:
    """Derive a run's index from its journals anew. Nothing is lost by it; a live run goes on meanwhile."""
    from harbortui.cli import text
    from harbortui.cli.label import label
    from harbortui.runs import layout, reading
    from harbortui.runs.index.place import place_of

    found = layout.find(run)
    began = time.monotonic()
    reading.rebuild(found)
    index = place_of(found).index
    took, size = time.monotonic() - began, index.stat().st_size
    if as_json:
        return text.say_json({"run": found.name, "index": str(index), "seconds": round(took, 3), "bytes": size})
    print(f"{label(found)}: index built anew in {took:.1f} s ({size:,} bytes)")
    return None
