"""The alarms of a run: each raised once and cleared once, however often its cause is seen.

Guarantees: `AlarmBook.settle` turns the set of alarms that are true now into the events that tell the difference.
"""

from dataclasses import dataclass

from harbortui.runs.events import AlarmChanged, Severity


@dataclass(frozen=True)
class Alarm:
    """`text` says what is wrong, `remedy` what to do. Equal keys are the same alarm.

    One that is `kept` stands until it is lowered by hand.
    """

    key: str
    text: str
    remedy: str = ""
    severity: Severity = "warning"
    process: str = ""
    kept: bool = False


class AlarmBook:
    """`standing` outlives the supervisor in the ledger: what an earlier one raised, this one clears."""

    def __init__(self, standing: dict[str, Alarm]) -> None:
        self.standing = standing

    def settle(self, now: list[Alarm]) -> list[AlarmChanged]:
        """The alarms of the watchdog as they stand now; those raised by hand stay until lowered."""
        fresh = {alarm.key: alarm for alarm in now}
        told = [self.raise_(alarm) for alarm in fresh.values()]
        told += [self.lower(key) for key, alarm in list(self.standing.items()) if key not in fresh and not alarm.kept]
        return [event for event in told if event]

    def raise_(self, alarm: Alarm) -> AlarmChanged | None:
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
        alarm = self.standing.pop(key, None)
        if alarm is None:
            return None
        return AlarmChanged(key=key, state="cleared", text=alarm.text, process=alarm.process)
