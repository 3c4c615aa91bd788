"""The alarms of a run: each raised once and cleared once, however often its cause is seen.

Guarantees: `AlarmBook.settle` turns the set of alarms that are true now into the events that tell the difference.
"""

from dataclasses import dataclass

from harbortui.runs.events import AlarmChanged, Severity


@dataclass(frozen=True)
class Alarm:
    """`text` says what is wrong, `remedy` what to do. Equal keys are the same alarm."""

    key: str
    text: str
    remedy: str = ""
    severity: Severity = "warning"
    process: str = ""


class AlarmBook:
    """`standing` outlives the supervisor in the ledger: what an earlier one raised, this one clears."""

    def __init__(self, standing: dict[str, Alarm]) -> None:
        self.standing = standing

    def settle(self, now: list[Alarm]) -> list[AlarmChanged]:
        """What to tell, so that exactly these stand; one that has become graver is told again."""
        fresh = {alarm.key: alarm for alarm in now}
        told = [self.raise_(alarm) for alarm in fresh.values()]
        told += [self.lower(key) for key in list(self.standing) if key not in fresh]
        return [event for event in told if event]

    def raise_(self, alarm: Alarm) -> AlarmChanged | None:
        before = self.standing.get(alarm.key)
        if before and before.severity == alarm.severity:
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
        alarm = self.standing.pop(key, None)
        if alarm is None:
            return None
        return AlarmChanged(key=key, state="cleared", text=alarm.text, process=alarm.process)
