"""Probes: is a process ready, is it still alive inside?

Guarantees: one `check` takes at most the probe's timeout and answers with '' or with the reason in words; it never
raises. A log probe sees only what this life of the process has written.

On failure: the reason is kept and becomes part of the process's state.
"""

import asyncio
import os
import re
import signal
import urllib.parse
from pathlib import Path

from harbortui.supervisor.plan import Probe

LOOK = 1 << 20


class Prober:
    """Checks one probe of one life of a process."""

    def __init__(self, probe: Probe, log: Path, log_from: int, env: dict[str, str], cwd: str) -> None:
        self.probe, self.env, self.cwd = probe, env, cwd
        self.log, self.offset = log, log_from

    async def check(self) -> str:
        try:
            async with asyncio.timeout(self.probe.timeout):
                return await getattr(self, "_" + self.probe.kind)()
        except TimeoutError:
            return f"no answer within {self.probe.timeout:g} s"
        except (OSError, ValueError, EOFError) as error:
            return str(error) or type(error).__name__

    async def until_ready(self) -> str:
        """Check until it succeeds ('') or its deadline has passed (the last reason)."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.probe.deadline
        pause = min(0.02, self.probe.interval)
        while why := await self.check():
            if loop.time() >= end:
                return f"not ready after {self.probe.deadline:g} s: {why}"
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self.probe.interval)
        return ""

    async def until_dead(self) -> str:
        """Check for ever; return the reason once it has failed the set number of times in a row."""
        failed = 0
        while True:
            await asyncio.sleep(self.probe.interval)
            why = await self.check()
            failed = failed + 1 if why else 0
            if failed >= self.probe.failures:
                return f"failed its liveness probe {failed} times: {why}"

    async def _http(self) -> str:
        url = urllib.parse.urlsplit(self.probe.target)
        port = url.port or (443 if url.scheme == "https" else 80)
        reader, writer = await asyncio.open_connection(url.hostname, port, ssl=url.scheme == "https" or None)
        try:
            path = (url.path or "/") + ("?" + url.query if url.query else "")
            writer.write(f"GET {path} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n".encode())
            words = (await reader.readline()).split(None, 2)
        finally:
            writer.close()
        if len(words) < 2 or not words[1].isdigit():
            return f"{self.probe.target} does not speak HTTP"
        return "" if 200 <= int(words[1]) < 400 else f"{self.probe.target} answered {int(words[1])}"

    async def _unix(self) -> str:
        _, writer = await asyncio.open_unix_connection(self._path(self.probe.target))
        writer.close()
        return ""

    async def _file(self) -> str:
        return "" if os.path.exists(self._path(self.probe.target)) else f"{self.probe.target} is not there"

    async def _log(self) -> str:
        size = os.path.getsize(self.log)
        start = self.offset if self.offset <= size else 0
        with open(self.log, "rb") as file:
            file.seek(start)
            text = file.read(LOOK)
        if re.search(self.probe.target, text.decode("utf-8", "replace"), re.MULTILINE):
            return ""
        self.offset = start + (text.rfind(b"\n") + 1 or (len(text) if len(text) == LOOK else 0))
        return f"no line like {self.probe.target!r} in its log yet"

    async def _command(self) -> str:
        process = await asyncio.create_subprocess_exec(
            *self.probe.command,
            env=self.env,
            cwd=self.cwd or None,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return "" if code == 0 else f"{self.probe.command[0]} exited with {code}"

    def _path(self, target: str) -> str:
        return os.path.join(self.cwd, target) if self.cwd else target
