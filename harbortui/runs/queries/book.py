"""What is asked of the run's book: checkpoints, alarms, what operators did, notes, and defects of the journals."""

from typing import Any

import msgspec

from harbortui.runs.events import AlarmChanged, CheckpointChanged, Defect, Event, Note, OperatorAction
from harbortui.runs.queries.base import END, kind_tag
from harbortui.runs.queries.run import RunQueries


class CheckpointRow(msgspec.Struct, frozen=True):
    """A checkpoint is whole from the moment its manifest was on disk; `since` is when it entered its state."""

    id: str
    state: str
    since: float
    step: int
    path: str
    bytes: int
    policy: int
    request: str
    reason: str
    score: float | None
    asked: float | None
    writing: float | None
    whole: float | None


class AlarmRow(msgspec.Struct, frozen=True):
    key: str
    text: str
    remedy: str
    severity: str
    process: str
    raised: float
    cleared: float | None


class ActionRow(msgspec.Struct, frozen=True):
    """A verb somebody spoke: `asked` when, and when what it promised `became_true`."""

    request: str
    verb: str
    arguments: dict[str, Any]
    state: str
    asked: float
    became_true: float | None
    user: str
    uid: int
    tty: str
    answer: str


class NoteRow(msgspec.Struct, frozen=True):
    t: float
    text: str
    user: str


class DefectRow(msgspec.Struct, frozen=True):
    """Something that is not as it should be with a journal or the index; `where` names the file or process."""

    where: str
    what: str
    count: int
    detail: str = ""


class BookQueries(RunQueries):
    def checkpoints(self, at: float | None = None) -> list[CheckpointRow]:
        """Newest first, by step."""
        told: dict[str, list[CheckpointChanged]] = {}
        for event in self._facts(CheckpointChanged, at):
            told.setdefault(event.id, []).append(event)
        rows = [_checkpoint(events) for events in told.values()]
        return sorted(rows, key=lambda row: (row.step, row.since, row.id), reverse=True)

    def checkpoint_ended(self, request: str) -> CheckpointChanged | None:
        """How the checkpoint that a request asked for has ended: whole or failed; None while it has not."""
        told = self._facts(CheckpointChanged)
        return next((event for event in told if event.request == request and event.state in ("whole", "failed")), None)

    def alarms(self, at: float | None = None) -> list[AlarmRow]:
        """Those raised and not cleared in the run's current attempt, newest first."""
        with self.snapshot():
            run = self.run(at)
            attempt = run.attempt if run else 0
            if at is None:
                told = self._events("SELECT body FROM alarm WHERE state = 'raised'")
            else:
                told = self._events(
                    "SELECT body FROM (SELECT body, max(t) FROM fact WHERE kind = 'alarm' AND t <= ? GROUP BY key) "
                    "WHERE json_extract(body, '$.state') = 'raised'",
                    at,
                )
            raised = [event for event in told if isinstance(event, AlarmChanged) and event.attempt >= attempt]
        return sorted((_alarm(event, None) for event in raised), key=lambda row: -row.raised)

    def alarm_history(self, limit: int = 200, at: float | None = None) -> list[AlarmRow]:
        """The last alarms, newest first, with the time at which each was cleared."""
        rows: list[AlarmRow] = []
        open_: dict[str, AlarmChanged] = {}
        for event in self._newest(AlarmChanged, 3 * limit, at):
            raised = open_.pop(event.key, None)
            if raised is not None and event.state == "cleared":
                rows.append(_alarm(raised, event.t))
            elif event.state == "raised":
                open_[event.key] = raised or event
        rows += [_alarm(event, None) for event in open_.values()]
        return sorted(rows, key=lambda row: -row.raised)[:limit]

    def actions(self, limit: int = 100, at: float | None = None) -> list[ActionRow]:
        """What operators asked for, newest first, with what became of it."""
        told: dict[str, list[OperatorAction]] = {}
        for number, event in enumerate(self._newest(OperatorAction, 3 * limit, at)):
            told.setdefault(event.request or f"#{number}", []).append(event)
        rows = [_action(events) for events in told.values()]
        return sorted(rows, key=lambda row: -row.asked)[:limit]

    def notes(self, limit: int = 100, at: float | None = None) -> list[NoteRow]:
        return [NoteRow(note.t, note.text, note.user) for note in reversed(self._newest(Note, limit, at))]

    def _newest[E: Event](self, kind: type[E], count: int, at: float | None) -> list[E]:
        """The last facts of a kind that has an index by time, in order of time."""
        tag = kind_tag(kind)
        found = self._events(
            f"SELECT body FROM fact INDEXED BY fact_{tag} WHERE kind = '{tag}' AND t <= ? "
            "ORDER BY t DESC, key DESC, process DESC, body DESC LIMIT ?",
            END if at is None else at,
            count,
        )
        return [event for event in reversed(found) if isinstance(event, kind)]

    def defects(self) -> list[DefectRow]:
        with self.snapshot():
            rows = [
                DefectRow(journal, what, count, f"first at byte {first}")
                for journal, what, count, first in self._rows("SELECT * FROM bad_line ORDER BY journal, what")
            ]
            for name, pending, state, reason in self._rows(
                "SELECT name, pending, state, reason FROM journal ORDER BY name"
            ):
                if state:
                    rows.append(DefectRow(name, state, 1, reason))
                if pending:
                    rows.append(DefectRow(name, "unfinished last line", 1, f"{pending} bytes"))
            for kind, count in self._rows("SELECT kind, count FROM unknown ORDER BY kind"):
                rows.append(DefectRow("", "unknown kind of event", count, kind))
            for process in self._keys("defect"):
                rows += [DefectRow(process, e.what, e.count, e.detail) for e in self._facts(Defect, key=process)]
            meta = dict(self._rows("SELECT key, value FROM meta"))
            if meta.get("reason", "there was none") != "there was none":
                rows.append(DefectRow("index", "built anew", 1, meta["reason"]))
            return rows

    def offsets(self) -> dict[str, int]:
        """How far each journal has been taken in, in bytes."""
        return dict(self._rows("SELECT name, offset FROM journal"))


def _checkpoint(events: list[CheckpointChanged]) -> CheckpointRow:
    last = events[-1]

    def when(state: str) -> float | None:
        return next((event.t for event in reversed(events) if event.state == state), None)

    def known(name: str, nothing: Any) -> Any:
        return next((value for event in reversed(events) if (value := getattr(event, name)) != nothing), nothing)

    return CheckpointRow(
        id=last.id, state=last.state, since=last.t, step=known("step", 0), path=known("path", ""),
        bytes=known("bytes", 0), policy=known("policy", 0), request=known("request", ""), reason=last.reason,
        score=known("score", None), asked=when("asked"), writing=when("writing"), whole=when("whole"),
    )  # fmt: skip


def _alarm(event: AlarmChanged, cleared: float | None) -> AlarmRow:
    return AlarmRow(event.key, event.text, event.remedy, event.severity, event.process, event.t, cleared)


def _action(events: list[OperatorAction]) -> ActionRow:
    first, last = events[0], events[-1]
    return ActionRow(
        request=first.request, verb=first.verb, arguments=first.arguments, state=last.state, asked=first.t,
        became_true=next((event.t for event in events if event.state == "true"), None),
        user=first.user, uid=first.uid, tty=first.tty, answer=last.answer or first.answer,
    )  # fmt: skip
