"""Progress as lines: what happened to a run, one `key=value` line (or JSON object) per step, change and alarm.

Of processes only what goes wrong is told, and what follows from it.

Guarantees: every line has `time`, `event` and `run`, and `demo=true` where the run is one; a value that is unknown is
absent; each line is flushed at once. Values with blanks are quoted as in JSON, so a line never breaks.

On failure: a reader that goes away (`| head`) loses the lines, not the run: following goes on to the end in silence.
So does a disk that is full; that is said once on standard error.
"""

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from harbortui.cli import errors, text
from harbortui.runs.events import (
    AlarmChanged,
    CheckpointChanged,
    Event,
    Note,
    OperatorAction,
    ProcessChanged,
    RunChanged,
    StepDone,
)

if TYPE_CHECKING:
    from harbortui.cli.view import View

KINDS = ("run", "process", "step", "alarm", "checkpoint", "operator", "note")
_BARE = re.compile(r"[^\s\"=\\]+")


def fields(event: Event) -> dict[str, Any]:
    """What of an event belongs on a line; nothing for one that is no news."""
    found: dict[str, Any] = {}
    match event:
        case RunChanged():
            found = {
                "event": "state", "state": event.state, "level": event.level, "reason": event.reason,
                "attempt": event.attempt, "backend": event.backend,
            }  # fmt: skip
        case ProcessChanged() if event.restarts or event.state in ("backoff", "failed"):
            found = {
                "event": "process", "process": event.process, "state": event.state, "pid": event.pid or None,
                "restarts": event.restarts or None, "code": event.code, "signal": event.signal, "reason": event.reason,
            }  # fmt: skip
        case StepDone():
            found = step_fields(event)
        case AlarmChanged():
            found = {
                "event": "alarm", "alarm": event.key, "state": event.state, "severity": event.severity,
                "process": event.process, "text": event.text, "remedy": event.remedy,
            }  # fmt: skip
        case CheckpointChanged() if event.state in ("whole", "failed"):
            found = {
                "event": "checkpoint", "checkpoint": event.id, "state": event.state, "step": event.step,
                "bytes": event.bytes or None, "reason": event.reason,
            }  # fmt: skip
        case OperatorAction():
            found = {
                "event": "operator", "verb": event.verb, "state": event.state, "user": event.user,
                "answer": event.answer, "request": event.request,
            }  # fmt: skip
        case Note():
            found = {"event": "note", "user": event.user, "text": event.text}
    return {key: value for key, value in found.items() if value is not None and value != ""}


def step_fields(event: StepDone) -> dict[str, Any]:
    return {
        "event": "step", "step": event.step, "total": event.total, "reward": event.reward,
        "honest": event.honest_reward, "loss": event.loss, "solve_rate": event.solve_rate,
        "episodes": event.episodes, "left_out": sum(event.left_out.values()) or None, "policy": event.policy,
        "seconds": event.seconds, "rate": event.episodes / event.seconds if event.seconds else None,
        "tokens": event.tokens or None, "attempt": event.attempt,
    }  # fmt: skip


def logfmt(pairs: dict[str, Any]) -> str:
    return " ".join(f"{key}={_value(value)}" for key, value in pairs.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
    shown = text.plain(str(value))
    return shown if _BARE.fullmatch(shown) else json.dumps(shown, ensure_ascii=False)


class Lines:
    """The face of a pipe."""

    def __init__(self, name: str, as_json: bool) -> None:
        self.name, self.as_json, self.broken, self.interrupts = name, as_json, False, 0

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def present(self, view: "View") -> None:
        """What the run is at the moment, for one who comes later."""
        last = view.last
        now = {
            "state": view.state, "level": view.level, "reason": view.reason, "attempt": view.attempt,
            "backend": view.backend, "step": view.step, "total": view.total, "reward": last and last.reward,
            "honest": last and last.honest_reward, "loss": last and last.loss,
        }  # fmt: skip
        known = {key: value for key, value in now.items() if value is not None and value != ""}
        self.say({**self._head(view, time.time(), "state"), **known})

    def _head(self, view: "View", t: float, event: str) -> dict[str, Any]:
        head: dict[str, Any] = {"time": text.clock(t), "event": event, "run": self.name}
        return {**head, "demo": True} if view.demo else head

    def show(self, view: "View", events: list[Event]) -> None:
        for event in events:
            found = fields(event)
            if not found:
                continue
            head = self._head(view, event.t, found.pop("event"))
            if head["event"] == "step":
                found["state"] = view.state
            self.say({**head, **found})

    def say(self, pairs: dict[str, Any]) -> None:
        if self.broken:
            return
        try:
            print(text.dumps(pairs) if self.as_json else logfmt(pairs), flush=True)
        except OSError as error:
            self.broken = True
            errors.hush()
            if not isinstance(error, BrokenPipeError):
                self.tell(f"the output could not be written ({error.strerror}); {self.name} goes on without it")

    def tell(self, sentence: str) -> None:
        """Something about this command itself, not about the run."""
        try:
            print(f"harbortui: {text.plain(sentence)}", file=sys.stderr, flush=True)
        except OSError:
            pass

    def part(self, sentence: str) -> None:
        """The last sentence."""
        self.tell(sentence)
