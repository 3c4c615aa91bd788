"""JSON lines between the demo's orchestrator, its workers and its trainer."""

import asyncio
from typing import Any

import msgspec


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, path: str) -> "Wire":
        return cls(*await asyncio.open_unix_connection(path, limit=1 << 20))

    def send(self, **message: Any) -> None:
        self._writer.write(msgspec.json.encode(message) + b"\n")

    async def hear(self) -> dict[str, Any] | None:
        """The next message; None when the other end is gone."""
        try:
            line = await self._reader.readline()
        except (OSError, ValueError):
            return None
        return msgspec.json.decode(line, type=dict[str, Any]) if line.endswith(b"\n") else None

    def close(self) -> None:
        self._writer.close()
