"""Telling somebody who is not looking: a command or a webhook when a run ends, fails or is held.

Guarantees: the command gets the event as JSON on its standard input, the webhook as the body of a POST; both have ten
seconds, no shell, and are never in the way of the run. The bell is rung by faces.

On failure: one line in the supervisor's log.
"""

import asyncio
import sys
import urllib.request
from collections.abc import Mapping

import msgspec

from harbortui.config.secrets import expand
from harbortui.runs.layout import Run
from harbortui.supervisor.plan import Notify

PATIENCE = 10.0


async def notify(wanted: Notify, run: Run, state: str, reason: str, variables: Mapping[str, str]) -> None:
    text = f"{run.name}: {state}" + (f" ({reason})" if reason else "")
    body = msgspec.json.encode({"run": run.name, "path": str(run.path), "state": state, "reason": reason, "text": text})
    if wanted.command:
        await _command(wanted.command, body, variables)
    if wanted.webhook:
        await _post(expand(wanted.webhook, variables), body)


async def _command(command: list[str], body: bytes, variables: Mapping[str, str]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=dict(variables), stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        print(f"notify.command: {error}", file=sys.stderr)
        return
    try:
        async with asyncio.timeout(PATIENCE):
            await process.communicate(body)
    except TimeoutError:
        process.kill()
        print(f"notify.command: killed after {PATIENCE:g} s", file=sys.stderr)


async def _post(url: str, body: bytes) -> None:
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=PATIENCE).close())
    except (OSError, ValueError) as error:
        print(f"notify.webhook: {type(error).__name__}: {getattr(error, 'reason', '')}", file=sys.stderr)
