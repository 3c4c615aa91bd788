"""The control socket: JSON lines from faces to the supervisor, one answer a request.

A request: `{"protocol": 1, "verb": "pause", "arguments": {...}, "request": "...", "user": "...", "tty": "..."}`.
An answer: `{"protocol": 1, "ok": true, "answer": "...", "request": "...", "supervisor": {...}}`, or `"ok": false` with
the reason in `answer`.

Guarantees: only processes of the supervisor's own user are heard (the kernel tells who they are), whatever the
permissions of the file. An answer says what will be done; that it has become true stands in the journal. Every verb
that was heard is journaled with its speaker before it is answered.

On failure: a request that is no request gets a sentence, not a closed line; a client that hangs or leaves harms nobody.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from harbortui.runs.layout import Run, private
from harbortui.supervisor.lock import user_name
from harbortui.supervisor.verbs import PROTOCOL

LIMIT = 1 << 20
Handler = Callable[[dict[str, Any]], Awaitable[tuple[bool, str, str]]]


def peer(sock: Any) -> tuple[int, int]:
    """(pid, uid) of whoever is at the other end."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


class ControlServer:
    def __init__(self, run: Run, handle: Handler, status: Callable[[], dict[str, Any]]) -> None:
        self.run, self.handle, self.status = run, handle, status
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def keep_open(self, look: float = 2.0) -> None:
        """The folder of the socket may be removed under us (a logout): be there again."""
        while True:
            await asyncio.sleep(look)
            if not (self.run.runtime / "control.sock").exists() and self.run.path.is_dir():
                with contextlib.suppress(OSError):
                    if self._server:
                        self._server.close()
                    await self.open()

    async def open(self) -> None:
        path = private(self.run.runtime) / "control.sock"
        path.unlink(missing_ok=True)
        old = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(path), limit=LIMIT)
        finally:
            os.umask(old)
        link(self.run.control, path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            _, uid = peer(writer.get_extra_info("socket"))
            if uid != os.getuid():
                text = f"this run belongs to {user_name(os.getuid())}; {user_name(uid)} may look at it, not control it"
                await self._answer(writer, False, text, "", known=False)
                return
            while line := await reader.readline():
                ok, answer, request = await self._heard(line, uid)
                await self._answer(writer, ok, answer, request)
        except ValueError:
            with contextlib.suppress(OSError):
                await self._answer(writer, False, f"a request is one line of at most {LIMIT} bytes", "")
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _heard(self, line: bytes, uid: int) -> tuple[bool, str, str]:
        try:
            asked = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False, "a request is one JSON object on one line", ""
        if asked.get("protocol") != PROTOCOL:
            return False, f"found protocol {asked.get('protocol')!r}, this supervisor speaks {PROTOCOL}", ""
        return await self.handle({**asked, "uid": uid, "user": user_name(uid)})

    async def _answer(
        self, writer: asyncio.StreamWriter, ok: bool, answer: str, request: str, known: bool = True
    ) -> None:
        status = self.status() if known else {}
        body = {"protocol": PROTOCOL, "ok": ok, "answer": answer, "request": request, "supervisor": status}
        writer.write(msgspec.json.encode(body) + b"\n")
        await writer.drain()

    async def close(self) -> None:
        if self._server:
            self._server.close()
        for writer in list(self._open):
            writer.close()
        (self.run.runtime / "control.sock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.run.control.unlink(missing_ok=True)


def link(name: Path, target: Path) -> None:
    """`control.sock` in the run directory: a link, since a socket's own path must be short."""
    with contextlib.suppress(OSError):
        if name.is_symlink() or name.exists():
            name.unlink()
        name.symlink_to(target)
