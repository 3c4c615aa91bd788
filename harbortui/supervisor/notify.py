"""Telling somebody who is not looking: a command or a webhook when a run ends, fails or is held.

Guarantees: the command gets the event as JSON on its standard input, the webhook as the body of a POST; both have ten
seconds, no shell, and are never in the way of the run. The bell is rung by faces.

On failure: a sentence, which becomes an alarm. The URL, which may be a secret, is not part of it.
"""

import asyncio
import urllib.request
from collections.abc import Mapping

import msgspec

from harbortui.config.secrets import expand
from harbortui.runs.layout import Run
from harbortui.supervisor.plan import Notify

PATIENCE = 10.0


async def notify(wanted: Notify, run: Run, state: str, reason: str, variables: Mapping[str, str]) -> str:
    """Tell them; what went wrong, or ''."""
    text = f"{run.name}: {state}" + (f" ({reason})" if reason else "")
    body = msgspec.json.encode({"run": run.name, "path": str(run.path), "state": state, "reason": reason, "text": text})
    problems = []
    if wanted.command:
        problems.append(await _command(wanted.command, body, variables))
    if wanted.webhook:
        problems.append(await _post(wanted.webhook, body, variables))
    return "; ".join(problem for problem in problems if problem)


async def _command(command: list[str], body: bytes, variables: Mapping[str, str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=dict(variables), stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        return f"notify.command: {command[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(PATIENCE):
            await process.communicate(body)
    except TimeoutError:
        process.kill()
        return f"notify.command: killed after {PATIENCE:g} s"
    return f"notify.command: exited with {process.returncode}" if process.returncode else ""


async def _post(url: str, body: bytes, variables: Mapping[str, str]) -> str:
    try:
        request = urllib.request.Request(expand(url, variables), body, {"Content-Type": "application/json"})
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=PATIENCE).close())
    except KeyError as name:
        return f"notify.webhook: the variable {name} is not set"
    except (OSError, ValueError) as error:
        return f"notify.webhook: {type(error).__name__} {getattr(error, 'code', '') or getattr(error, 'reason', '')}"
    return ""
