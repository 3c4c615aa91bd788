"""`harbortui config show|check|schema`: a config as the run would have it, without starting anything."""

from pathlib import Path
from typing import Annotated

import typer

from harbortui.cli.options import Json, Overrides

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file.")]


def add(app: typer.Typer) -> None:
    family = typer.Typer(help="Check and show configs.", epilog="Example: harbortui config check configs/demo.toml")
    family.command(epilog="Example: harbortui config check configs/demo.toml --set demo.rate=500")(check)
    family.command(epilog="Example: harbortui config show configs/demo.toml")(show)
    family.command(epilog="Example: harbortui config schema > harbortui.schema.json")(schema)
    app.add_typer(family, name="config", rich_help_panel="Start")


def check(config: Config, overrides: Overrides = None, as_json: Json = False) -> None:
    """Say whether a config is good: exit 0, or 2 with every problem by file, line and key."""
    from harbortui.backends.plans import missing_backend
    from harbortui.cli import text
    from harbortui.config.load import load

    loaded = load(config, overrides or [])
    unavailable = missing_backend(loaded.config.backend.name)
    body = {
        "ok": True, "config": str(config), "run": loaded.config.run.name, "backend": loaded.config.backend.name,
        "missing": list(loaded.missing), "unavailable": unavailable,
    }  # fmt: skip
    if as_json:
        return text.say_json(body)
    print(f"{config} is good: run {body['run']}, backend {body['backend']}")
    if loaded.missing:
        print(f"not set yet, and needed to start: {', '.join(loaded.missing)}; put them into .env or the environment")
    if unavailable:
        print(f"cannot be run yet: {unavailable}")
    return None


def show(config: Config, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print the whole config as the run will have it, every default written out; secrets by name only."""
    from harbortui.cli import text
    from harbortui.config.load import load

    loaded = load(config, overrides or [])
    if as_json:
        return text.say_json(loaded.config.model_dump(mode="json", exclude_none=True))
    print(loaded.text, end="")
    return None


def schema(as_json: Json = True) -> None:
    """Print the JSON Schema of a config, for editors. It is JSON with or without --json."""
    from harbortui.cli import text
    from harbortui.config.load import json_schema

    text.say_json(json_schema())
