"""What every process of the demo has in common: a journal, the wishes, a chatty log, faults on demand, a clean end.

Guarantees: every event carries `demo`. SIGTERM ends an actor within a fraction of a second, unless it was told to
ignore it.

On failure: a fault is meant; anything else is a traceback in the log and exit code 1.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from harbortui.backends.demo.knobs import STARTS, Fault, faults, knobs
from harbortui.runs.desired import Desired, Steering
from harbortui.runs.events import Activity, Event
from harbortui.runs.journal import Journal
from harbortui.runs.layout import Run

LINES = (
    "INFO  throughput {0} tokens/s, queue {1}",
    "INFO  batch of {1} taken in {2:.2f} s",
    "DEBUG cache {1} % used, {0} blocks",
    "WARNING slow answer: {2:.2f} s",
)


class Actor:
    def __init__(self) -> None:
        self.run = Run(Path(os.environ["HARBORTUI_RUN"]))
        self.name = os.environ["HARBORTUI_PROCESS"]
        self.attempt = int(os.environ["HARBORTUI_ATTEMPT"])
        self.knobs = knobs()
        self.journal = Journal.open(self.run, self.name, os.environ["HARBORTUI_ROLE"], self.attempt, demo=True)
        if witness := os.environ.get("HARBORTUI_DEMO_WITNESS"):
            count_acknowledged(self.journal, Path(witness) / self.journal.path.name)
        self.steering = Steering(self.run, self.journal)
        self.random = random.Random(f"{self.knobs.seed}:{self.name}")
        self.stopping = asyncio.Event()
        self.rate = self.knobs.rate
        self.hung = False
        self._doing = ("", "")

    def act(self, *parts: Coroutine[Any, Any, None]) -> int:
        """Run until one of the parts ends (0) or until asked to stop (143: what is stopped has not done its work)."""
        return asyncio.run(self._act(parts))

    async def _act(self, parts: tuple[Coroutine[Any, Any, None], ...]) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        print(f"demo {self.name} {STARTS}", flush=True)
        work = [asyncio.ensure_future(part) for part in parts]
        extra = [asyncio.ensure_future(self._chat())] + [asyncio.ensure_future(self._suffer(f)) for f in faults()]
        stop = asyncio.ensure_future(self.stopping.wait())
        await asyncio.wait([*work, stop], return_when=asyncio.FIRST_COMPLETED)
        for task in (*work, *extra, stop):
            task.cancel()
        ended = await asyncio.gather(*work, return_exceptions=True)
        self.journal.close()
        for problem in ended:
            if isinstance(problem, Exception):
                raise problem
        return 128 + signal.SIGTERM if self.stopping.is_set() else 0

    def doing(self, what: str, on: str = "") -> None:
        if self._doing != (what, on):
            self._doing = (what, on)
            self.journal.append(Activity(doing=what, on=on))

    async def steer(self, obey: Any) -> None:
        """Look for wishes twenty times a second; `obey` must have taken effect when it returns."""
        while True:
            await self.journal_alive()
            fresh: Desired | None = self.steering.changed()
            if fresh is not None:
                self.rate = float(fresh.settings.get("demo.rate", self.knobs.rate))
                await obey(fresh)
                self.steering.acknowledge()
            await asyncio.sleep(0.05)

    async def journal_alive(self) -> None:
        while self.hung:
            await asyncio.sleep(0.05)

    async def _chat(self) -> None:
        while self.knobs.log_lines > 0:
            await asyncio.sleep(1 / self.knobs.log_lines)
            line = self.random.choice(LINES)
            print(
                line.format(self.random.randrange(4000), self.random.randrange(100), self.random.random()), flush=True
            )

    async def _suffer(self, fault: Fault) -> None:
        await asyncio.sleep(fault.after)
        print(f"demo fault: {fault.do}", flush=True)
        match fault.do:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(int(fault.amount or 1))
            case "hang":
                signal.pause()
            case "stop-journal":
                self.hung = True
            case "ignore-sigterm":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            case "fork":
                fork_away(int(fault.amount or 2))
            case "flood":
                await asyncio.to_thread(flood, int(fault.amount or 1_000_000))


def count_acknowledged(journal: Journal, path: Path) -> None:
    """Keep, where no death can undo it, how many events have been acknowledged (for the tests that kill actors)."""
    fd, count, append = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644), 0, journal.append

    def counted(event: Event) -> bool:
        nonlocal count
        if acknowledged := append(event):
            count += 1
            os.pwrite(fd, b"%12d" % count, 0)
        return acknowledged

    journal.append = counted  # type: ignore[method-assign]


def fork_away(count: int) -> None:
    """Grandchildren that leave the session and ignore SIGTERM, as badly behaved engines do."""
    for _ in range(count):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(3600)
            while True:
                signal.pause()


def flood(lines: int) -> None:
    block = b"".join(b"demo flood, line %09d of a great many lines that nobody reads\n" % i for i in range(1000))
    with contextlib.suppress(BrokenPipeError):
        for _ in range(max(1, lines // 1000)):
            os.write(sys.stdout.fileno(), block)
    print("demo flood is over", flush=True)


def lives(run: Run, process: str, attempt: int) -> int:
    """How often this process has been started in this attempt, this life included."""
    return sum(1 for path in run.journals.glob(f"{process}-*-{attempt}.jsonl") if path.is_file())
