"""What the processes of a run must know and no file of the run may tell: the environment it was launched with, the
values of `.env`, and a token made for this run.

Guarantees: kept only in the user's runtime folder (0600, in memory where the machine has such a place), so that a new
supervisor starts children with the same environment as the old one. `values` are what logs and screens must not show.

On failure: when the folder's content is gone (a reboot), `recover` takes the present environment, and refuses with the
names of those secrets of the plan that are missing.
"""

import os
import secrets as random
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from harbortui.config.secrets import SHORTEST, secret_values
from harbortui.runs.layout import Run, private, write_whole
from harbortui.supervisor.plan import Plan

_OURS = (
    "HARBORTUI_PROCESS",
    "HARBORTUI_ROLE",
    "HARBORTUI_OWNER",
    "HARBORTUI_ATTEMPT",
    "HARBORTUI_TOKEN",
    "HARBORTUI_RUN",
)


class SecretsMissing(Exception):
    """A restart without its secrets is refused."""


@dataclass(frozen=True)
class Secrets:
    environment: dict[str, str]
    token: str

    def values(self) -> list[str]:
        found = [self.token, *secret_values(self.environment)]
        return [part for value in found for part in {value, *value.splitlines()} if len(part) >= SHORTEST]


class _Kept(msgspec.Struct):
    environment: dict[str, str]
    token: str


def make(dotenv: dict[str, str] | None = None) -> Secrets:
    """From the present environment and `.env`; what the environment says goes before what the file says."""
    here = {k: v for k, v in os.environ.items() if k not in _OURS and _is_text(k + v)}
    return Secrets({**(dotenv or {}), **here}, random.token_urlsafe(24))


def _is_text(value: str) -> bool:
    """A variable that is not UTF-8 cannot be kept, and nobody needs it to train."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def store(run: Run, secrets: Secrets) -> None:
    data = msgspec.json.encode(_Kept(secrets.environment, secrets.token))
    write_whole(private(run.runtime) / "secrets.json", data, mode=0o600)


def missing(plan: Plan, environment: dict[str, str]) -> list[str]:
    return sorted({name for spec in plan.processes for name in spec.secrets if not environment.get(name)})


def recover(run: Run, plan: Plan) -> Secrets:
    try:
        kept = msgspec.json.decode((private(run.runtime) / "secrets.json").read_bytes(), type=_Kept)
        return Secrets(kept.environment, kept.token)
    except (OSError, msgspec.DecodeError):
        fresh = make()
        if names := missing(plan, fresh.environment):
            raise SecretsMissing(lacking(names)) from None
        store(run, fresh)
        return fresh


def lacking(names: Iterable[str]) -> str:
    return f"missing from the environment and .env: {', '.join(names)}; set them and try again"
