"""The alarms of a run: each raised once and cleared once, however often its cause is seen.

Guarantees: `AlarmBook.settle` turns the set of alarms that are true now into the events that tell the difference.
"""

from dataclasses import dataclass

from harbortui.runs.events import AlarmChanged, Severity


@dataclass(frozen=True)
class Alarm:
    """`text` says what is wrong, `remedy` what to do. Equal keys are the same alarm, whatever the text."""

    key: str
    text: str
    remedy: str = ""
    severity: Severity = "warning"
    process: str = ""


class AlarmBook:
    def __init__(self, standing: dict[str, Alarm] | None = None) -> None:
        self.standing: dict[str, Alarm] = standing or {}
        self._kept: set[str] = set()

    def settle(self, now: list[Alarm]) -> list[AlarmChanged]:
        """The alarms of the watchdog as they stand now; those raised by hand stay until lowered."""
        fresh = {alarm.key: alarm for alarm in now}
        told = [self.raise_(alarm, kept=False) for key, alarm in fresh.items() if key not in self.standing]
        told += [self.lower(key) for key in list(self.standing) if key not in fresh and key not in self._kept]
        return [event for event in told if event]

    def raise_(self, alarm: Alarm, kept: bool = True) -> AlarmChanged | None:
        if kept:
            self._kept.add(alarm.key)
        if alarm.key in self.standing:
            return None
        self.standing[alarm.key] = alarm
        return AlarmChanged(
            key=alarm.key,
            state="raised",
            text=alarm.text,
            remedy=alarm.remedy,
            severity=alarm.severity,
            process=alarm.process,
        )

    def lower(self, key: str) -> AlarmChanged | None:
        self._kept.discard(key)
        alarm = self.standing.pop(key, None)
        if alarm is None:
            return None
        return AlarmChanged(key=key, state="cleared", text=alarm.text, process=alarm.process)
