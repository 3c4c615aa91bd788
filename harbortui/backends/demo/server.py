"""The demo's model server: a socket that answers, and nothing behind it."""

import asyncio
import contextlib
import sys

from harbortui.backends.demo.actor import Actor
from harbortui.runs.events import MetricRow
from harbortui.runs.layout import private


class Server(Actor):
    async def serve(self) -> None:
        path = private(self.run.runtime) / "server.sock"
        path.unlink(missing_ok=True)
        await asyncio.start_unix_server(self._client, str(path))
        self.doing("sampling")
        while True:
            await self.journal_alive()
            queue, cache = self.random.randrange(12), self.random.uniform(0.2, 0.9)
            self.journal.append(MetricRow(values={"server/queue": queue, "server/cache": round(cache, 3)}))
            await asyncio.sleep(2)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(4096):
                pass
        writer.close()


if __name__ == "__main__":
    actor = Server()
    sys.exit(actor.act(actor.serve()))
