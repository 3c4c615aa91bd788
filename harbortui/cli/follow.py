"""Following a run to its end, with a face for terminals and one for pipes.

Guarantees: what is shown is read from the run directory alone; losing this process changes nothing for the run. When
it `steers` (train, demo), SIGINT drains and checkpoints the run, a second one stops it at once, a third leaves; SIGTERM
suspends it; SIGHUP leaves it running. Else (run, attach) all of these, and the key `q`, leave it running.

The exit code: 0 the run finished or is suspended, 1 it failed or is lost, 130 SIGINT, 143 SIGTERM, 129 SIGHUP; 0 for
leaving with `q`.
"""

import signal
import sys
from typing import TYPE_CHECKING, Any

from harbortui.cli import text
from harbortui.cli.errors import FAILED
from harbortui.cli.label import is_ours
from harbortui.cli.signals import Signals

if TYPE_CHECKING:
    from harbortui.cli.lines import Lines
    from harbortui.cli.live import Live
    from harbortui.runs.layout import Run

PAUSE = 0.25


def follow(run: "Run", signals: Signals, *, steers: bool, as_json: bool = False, fresh: bool = False) -> int:
    """`fresh`: it was launched just now, and all that it told is news."""
    with _face(run, steers, as_json) as face:
        return _Following(run, signals, face, steers).to_end(fresh)


def tell(run: "Run", as_json: bool) -> int:
    """Lines until the end, whatever this process hears: it is the voice of a supervisor in the foreground."""
    from harbortui.cli.lines import Lines

    with Signals() as signals:
        signals.mute()
        return _Following(run, signals, Lines(run.name, as_json), steers=False).to_end(fresh=True)


def _face(run: "Run", steers: bool, as_json: bool) -> "Lines | Live":
    if sys.stdout.isatty() and not as_json and not text.dumb():
        from harbortui.cli.live import Live

        return Live(run, steers)
    from harbortui.cli.lines import Lines

    return Lines(run.name, as_json)


class _Following:
    def __init__(self, run: "Run", signals: Signals, face: "Lines | Live", steers: bool) -> None:
        self.run, self.signals, self.face, self.steers = run, signals, face, steers
        self.heard = dict.fromkeys(signals.count, 0)
        self.hinted = ""

    def to_end(self, fresh: bool) -> int:
        from harbortui.cli.view import Watch

        with Watch(self.run, fresh=fresh) as watch:
            if not fresh:
                self.face.present(watch.view())
            while True:
                left = self._heed()
                if left is not None:
                    return left
                view, events = watch.look()
                self.face.show(view, events)
                if view.hint and view.hint != self.hinted and not view.over:
                    self.hinted = view.hint
                    self.face.tell(view.hint)
                if view.over:
                    return self._code(view.state)
                self.signals.wait(PAUSE)

    def _code(self, state: str) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            if self.steers and self.heard[number]:
                return 128 + number
        return 0 if state in ("finished", "suspended") else FAILED

    def _heed(self) -> int | None:
        """Act on what has been heard since; an exit code when that means to leave."""
        fresh = [number for number, count in self.signals.count.items() if count > self.heard[number]]
        self.heard = dict(self.signals.count)
        if not self.steers and (fresh or {"q", "Q"} & set(self.signals.pressed)):
            self._leave()
            return 128 + fresh[0] if fresh else 0
        self.signals.pressed.clear()
        if signal.SIGHUP in fresh:
            self._leave()
            return 128 + signal.SIGHUP
        if signal.SIGTERM in fresh:
            self._ask("suspend")
        self.face.interrupts = self.heard[signal.SIGINT]
        if signal.SIGINT in fresh:
            if self.heard[signal.SIGINT] > 2:
                self._leave()
                return 128 + signal.SIGINT
            if self.heard[signal.SIGINT] == 2:
                self._ask("stop", now=True)
            else:
                self._ask("stop", drain=True)
                self.face.tell("Ctrl-C again stops it at once")
        return None

    def _leave(self) -> None:
        name = self.run.name
        end = f", end it: `harbortui stop {name}`" if is_ours(self.run) else ""
        self.face.part(f"{name} goes on; see it: `harbortui attach {name}`{end}")

    def _ask(self, verb: str, **arguments: Any) -> None:
        from harbortui.supervisor.client import LaunchFailed, NotControllable, connect

        try:
            with connect(self.run) as client:
                answer = client.ask(verb, **arguments)
            self.face.tell(f"{verb}: {answer.answer}")
        except (NotControllable, LaunchFailed, OSError) as error:
            self.face.tell(f"{verb}: {error}")
