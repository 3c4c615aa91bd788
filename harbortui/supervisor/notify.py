"""Telling somebody who is not looking: a command or a webhook when a run ends, fails or is held.

Guarantees: given at most ten seconds, never a shell, never in the way of the run. The bell is rung by faces.

On failure: one line in the supervisor's log.
"""

import asyncio
import json
import os
import sys
import urllib.request

from harbortui.runs.layout import Run
from harbortui.supervisor.plan import Notify

PATIENCE = 10.0


async def notify(wanted: Notify, run: Run, state: str, reason: str) -> None:
    if wanted.command:
        await _command(wanted.command, run, state, reason)
    if wanted.webhook:
        await _post(wanted.webhook, run, state, reason)


async def _command(command: list[str], run: Run, state: str, reason: str) -> None:
    env = {**os.environ, "HARBORTUI_RUN": str(run.path), "HARBORTUI_STATE": state, "HARBORTUI_REASON": reason}
    try:
        process = await asyncio.create_subprocess_exec(*command, env=env, stdin=asyncio.subprocess.DEVNULL)
    except OSError as error:
        return print(f"notify.command: {error}", file=sys.stderr)
    try:
        async with asyncio.timeout(PATIENCE):
            await process.wait()
    except TimeoutError:
        process.kill()
        print(f"notify.command: killed after {PATIENCE:g} s", file=sys.stderr)


async def _post(url: str, run: Run, state: str, reason: str) -> None:
    text = f"{run.name}: {state}" + (f" ({reason})" if reason else "")
    body = json.dumps({"run": run.name, "state": state, "reason": reason, "text": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=PATIENCE).close())
    except (OSError, ValueError) as error:
        print(f"notify.webhook: {error}", file=sys.stderr)
