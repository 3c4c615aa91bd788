"""The demo's trainer: takes a batch, takes its time, invents a loss that falls."""

import asyncio
import math
import sys

from harbortui.backends.demo.actor import Actor
from harbortui.backends.demo.wire import Wire
from harbortui.runs.events import MetricRow, PolicyPublished


class Trainer(Actor):
    async def train(self) -> None:
        while True:
            self.doing("waiting", "orchestrator")
            try:
                wire = await Wire.connect(str(self.run.runtime / "orders.sock"))
            except OSError:
                await asyncio.sleep(0.1)
                continue
            wire.send(hello="trainer", name=self.name)
            while order := await wire.hear():
                await self._step(wire, order)
                self.doing("waiting", "orchestrator")
            wire.close()

    async def _step(self, wire: Wire, order: dict[str, int]) -> None:
        step, policy = order["step"], order["policy"]
        self.doing("training")
        await asyncio.sleep(self.knobs.step_seconds * self.random.uniform(0.4, 0.6))
        await self.journal_alive()
        loss = 0.8 * math.exp(-step / 40) + self.random.uniform(0.0, 0.08)
        values = {
            "loss": round(loss, 5),
            "entropy": round(1.6 * math.exp(-step / 120) + self.random.uniform(0, 0.05), 5),
            "mismatch_kl": round(self.random.uniform(1e-4, 3e-3), 6),
            "grad_norm": round(self.random.uniform(0.2, 1.4), 4),
            "learning_rate": self.knobs.learning_rate,
        }
        self.journal.append(MetricRow(step=step, values={f"trainer/{name}": value for name, value in values.items()}))
        self.doing("publishing")
        started = asyncio.get_running_loop().time()
        await asyncio.sleep(self.knobs.step_seconds * 0.05)
        seconds = asyncio.get_running_loop().time() - started
        self.journal.append(
            PolicyPublished(policy=policy, step=step, path=f"weights/v{policy:06d}", seconds=round(seconds, 4))
        )
        wire.send(trained=step, values=values)


if __name__ == "__main__":
    actor = Trainer()
    sys.exit(actor.act(actor.train()))
