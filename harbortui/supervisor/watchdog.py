"""The watchdog: what is wrong with a run, from facts alone.

Guarantees: `look` is a pure function of what it is shown; time is monotonic, so a jumping clock raises no false alarm
but its own. Each activity is judged by its own median. While a run is paused or held nobody is called silent or slow.

On failure: a fact that is unknown (None) raises nothing.
"""

from collections import Counter
from dataclasses import dataclass, field

from harbortui.supervisor.alarms import Alarm
from harbortui.supervisor.plan import Watch

LITTLE_ROOM = 1 << 30
STUCK = 15.0
QUIET = frozenset({"idle", "waiting"})


@dataclass(frozen=True)
class Seen:
    """One process as it is now.

    `failures`: ends in a row without progress or steadiness; `reason`: of its last end or state; `quiet`: how long its
    journal has not grown; `lasting`: how long its activity goes on.
    """

    name: str
    role: str
    state: str
    reason: str = ""
    failures: int = 0
    quiet: float | None = None
    doing: str = ""
    on: str = ""
    lasting: float | None = None
    median: float | None = None


@dataclass(frozen=True)
class Late:
    """A live episode, and how long it has been in its phase."""

    episode: str
    phase: str
    lasting: float


@dataclass(frozen=True)
class Facts:
    """`late` are the oldest live episodes, `usual` the median length of each phase of an episode."""

    state: str
    processes: list[Seen]
    run: str = "RUN"
    late: list[Late] = field(default_factory=list)
    usual: dict[str, float] = field(default_factory=dict)
    disk_free: int | None = None
    disk_slope: float | None = None
    memory_percent: float | None = None
    index_behind: int | None = None
    index_stuck: float = 0.0
    journal_pending: int = 0
    clock_jump: float = 0.0


def look(facts: Facts, watch: Watch) -> list[Alarm]:
    alarms = [*_clock(facts), *_disk(facts, watch), *_memory(facts, watch), *_journals(facts)]
    for seen in facts.processes:
        alarms += _unstable(seen, facts)
        if facts.state == "running":
            alarms += _silent(seen, facts, watch)
    if facts.state == "running":
        alarms += [*_slow(facts, watch), *_stragglers(facts, watch)]
    return alarms


def _clock(facts: Facts) -> list[Alarm]:
    if abs(facts.clock_jump) < 5:
        return []
    way = "forward" if facts.clock_jump > 0 else "back"
    text = f"the clock jumped {way} by {duration(abs(facts.clock_jump))}; times before and after do not compare"
    return [Alarm("clock", text, "check NTP on this host; durations are not affected", "info")]


def _disk(facts: Facts, watch: Watch) -> list[Alarm]:
    if facts.disk_free is None:
        return []
    free = f"{facts.disk_free / (1 << 30):.1f} GiB free"
    remedy = "free space, prune checkpoints, or pause the run"
    if facts.disk_free < LITTLE_ROOM:
        return [Alarm("disk", f"the disk is nearly full: {free}", remedy, "critical")]
    if facts.disk_slope is not None and facts.disk_slope < 0:
        minutes = facts.disk_free / -facts.disk_slope / 60
        if minutes < watch.disk_minutes:
            return [Alarm("disk", f"the disk will be full in about {minutes:.0f} min ({free})", remedy)]
    return []


def _memory(facts: Facts, watch: Watch) -> list[Alarm]:
    if facts.memory_percent is None or facts.memory_percent < watch.memory_percent:
        return []
    text = f"{facts.memory_percent:.0f} % of this machine's memory is in use; the kernel will soon kill a process"
    return [Alarm("memory", text, "lower rollouts.concurrency, or see `harbortui ps` for who uses it", "critical")]


def _journals(facts: Facts) -> list[Alarm]:
    alarms = []
    if facts.journal_pending:
        text = f"the supervisor holds {facts.journal_pending} events that it cannot write"
        alarms.append(Alarm("journal", text, "free space on the disk of the run", "critical", "supervisor"))
    text = ""
    if facts.index_behind is None and facts.index_stuck > STUCK:
        text = "there is no index that can be read; states that have to be seen there cannot be told"
    elif facts.index_behind and facts.index_stuck > STUCK:
        text = f"the index has not come forward for {duration(facts.index_stuck)}; what is shown is old"
    elif facts.index_behind is not None and facts.index_behind > 64 << 20:
        text = f"the index is {facts.index_behind >> 20} MiB behind the journals; what is shown is old"
    if text:
        remedy = f"{_see(facts, 'indexer')}, or `harbortui restart indexer --run {facts.run}`"
        alarms.append(Alarm("index", text, remedy, process="indexer"))
    return alarms


def _unstable(seen: Seen, facts: Facts) -> list[Alarm]:
    if seen.state == "failed":
        text = f"{seen.name} has failed: {seen.reason}"
        return [Alarm(f"failed:{seen.name}", text, _see(facts, seen.name), "critical", seen.name)]
    if seen.failures >= 2:
        text = f"{seen.name} has ended {seen.failures} times in a row, each time soon: {seen.reason}"
        return [Alarm(f"restarts:{seen.name}", text, _see(facts, seen.name), process=seen.name)]
    return []


def _silent(seen: Seen, facts: Facts, watch: Watch) -> list[Alarm]:
    if (
        seen.quiet is None
        or seen.quiet < watch.silence
        or seen.doing in QUIET
        or seen.state not in ("ready", "running")
    ):
        return []
    text = f"{seen.name} has said nothing for {duration(seen.quiet)}" + (f" while {seen.doing}" if seen.doing else "")
    return [
        Alarm(
            f"silent:{seen.name}",
            text,
            f"{_see(facts, seen.name)}, or `harbortui restart {seen.name} --run {facts.run}`",
            process=seen.name,
        )
    ]


def _slow(facts: Facts, watch: Watch) -> list[Alarm]:
    late = [
        seen
        for seen in facts.processes
        if seen.lasting is not None
        and seen.median is not None
        and seen.doing
        and seen.lasting > max(watch.phase_factor * seen.median, watch.phase_floor)
    ]
    alarms = []
    roles = Counter(seen.role for seen in facts.processes)
    waits: dict[tuple[str, str], list[Seen]] = {}
    for seen in late:
        if seen.on:
            waits.setdefault((seen.role, seen.on), []).append(seen)
            continue
        text = (
            f"{seen.name} is {seen.doing} for {duration(seen.lasting or 0)}; its median is {duration(seen.median or 0)}"
        )
        alarms.append(Alarm(f"slow:{seen.name}", text, _see(facts, seen.name), process=seen.name))
    for (role, on), who in waits.items():
        longest = max(who, key=lambda seen: seen.lasting or 0)
        verb = "waits" if len(who) == 1 else "wait"
        subject = who[0].name if roles[role] == 1 else f"{len(who)} of {roles[role]} {role}"
        text = (
            f"{subject} {verb} for {on} since {duration(longest.lasting or 0)} (median {duration(longest.median or 0)})"
        )
        alarms.append(Alarm(f"waits:{role}:{on}", text, _see(facts, on), process=on))
    return alarms


def _stragglers(facts: Facts, watch: Watch) -> list[Alarm]:
    late = [
        one
        for one in facts.late
        if one.phase in facts.usual
        and one.lasting > max(watch.phase_factor * facts.usual[one.phase], watch.phase_floor)
    ]
    if not late:
        return []
    worst = max(late, key=lambda one: one.lasting)
    text = (
        f"{len(late)} episodes are" if len(late) > 1 else "an episode is"
    ) + f" late, the worst {worst.episode}: in {worst.phase} for {duration(worst.lasting)}"
    text += f" (median {duration(facts.usual[worst.phase])})"
    return [Alarm("stragglers", text, f"look at it, or `harbortui episode cancel {worst.episode} --run {facts.run}`")]


def _see(facts: Facts, process: str) -> str:
    return f"see `harbortui logs {facts.run} --process {process}`"


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
