"""What the System screen and the watchdog ask: who does what and waits for whom, how long phases take, resources.

Guarantees: medians come from a histogram with eight bins per doubling (within 5 %), of the newest half hours that
hold enough episodes; time that episodes were held is not in them.
"""

import msgspec

from harbortui.runs.events import Activity, Resources
from harbortui.runs.index.rollups import SLOT_SECONDS, seconds_of
from harbortui.runs.queries.base import END, Reader

ENOUGH = 50
RAW_SECONDS = 1800.0
_BETWEEN = "AND t > ? AND t <= ?"


class Span(msgspec.Struct, frozen=True):
    """`ended` None: it still does that, as far as anybody told."""

    process: str
    doing: str
    on: str
    began: float
    ended: float | None


class PhaseMedian(msgspec.Struct, frozen=True):
    seconds: float
    episodes: int


class ResourcePoint(msgspec.Struct, frozen=True):
    """Means over a stretch that begins at `t`, and the highest values in it; None where nothing was measured."""

    t: float
    cpu: float
    cpu_high: float
    rss: int
    rss_high: int
    gpu_use: float | None
    gpu_memory: int | None
    disk_used: int | None
    load: float | None


class Disk(msgspec.Struct, frozen=True):
    """`rate` is the growth of what is used, in bytes per second; `eta_seconds` until none is free, when it grows."""

    t: float
    free: int
    used: int | None
    rate: float | None
    eta_seconds: float | None


class SystemQueries(Reader):
    def timeline(self, start: float, end: float, at: float | None = None) -> list[Span]:
        """What each process did in a window; the first span of each may begin before it."""
        spans = []
        end = end if at is None else min(end, at)
        with self.snapshot():
            for process in self._keys("activity"):
                before = self._last(Activity, process, start)
                told = ([before] if before else []) + [
                    event
                    for event in self._events(
                        f"SELECT body FROM fact WHERE kind = 'activity' AND key = ? {_BETWEEN} ORDER BY t, body",
                        process,
                        start,
                        end,
                    )
                    if isinstance(event, Activity)
                ]
                ends = [*(event.t for event in told[1:]), None]
                spans += [Span(process, e.doing, e.on, e.t, until) for e, until in zip(told, ends, strict=False)]
        return spans

    def phase_medians(self, at: float | None = None) -> dict[str, PhaseMedian]:
        """The usual length of each phase of an episode."""
        last = int((END if at is None else at) // SLOT_SECONDS)
        with self.snapshot():
            phases = self._rows("SELECT DISTINCT phase FROM phase_length")
            return {phase: median for (phase,) in phases if (median := self._median(phase, last))}

    def _median(self, phase: str, last: int) -> PhaseMedian | None:
        bins: dict[int, int] = {}
        count, slot = 0, last + 1
        for slot_, bin_, parts in self._rows(
            "SELECT slot, bin, parts FROM phase_length WHERE phase = ? AND slot <= ? ORDER BY slot DESC", phase, last
        ):
            if slot_ != slot and count >= ENOUGH:
                break
            slot = slot_
            bins[bin_] = bins.get(bin_, 0) + parts
            count += parts
        passed = 0
        for bin_ in sorted(bins):
            passed += bins[bin_]
            if 2 * passed >= count:
                return PhaseMedian(seconds_of(bin_), count)
        return None

    def resources(
        self, process: str, start: float, end: float, points: int = 240, at: float | None = None
    ) -> list[ResourcePoint]:
        """A process (or "", the host) over a window: samples as they are when it is short, else minutes."""
        end = end if at is None else min(end, at)
        if end - start <= RAW_SECONDS:
            return self._samples(process, start, end)
        width = max(1, -(-int((end - start) / 60) // points))
        rows = self._rows(
            "SELECT minute / ? * ?, sum(cpu), max(cpu_high), sum(rss), max(rss_high), sum(gpu_use), sum(gpu_count), "
            "max(gpu_memory_high), max(disk_used_high), sum(load), sum(parts) FROM minute "
            "WHERE process = ? AND minute >= ? AND minute <= ? GROUP BY 1 ORDER BY 1",
            width, width, process, int(start // 60), int(end // 60),
        )  # fmt: skip
        return [
            ResourcePoint(
                minute * 60.0, cpu / n / 1000, cpu_high / 1000, rss // n, rss_high,
                use / used / 1000 if used else None, gpu, disk, load / n / 1000,
            )
            for minute, cpu, cpu_high, rss, rss_high, use, used, gpu, disk, load, n in rows
        ]  # fmt: skip

    def _samples(self, process: str, start: float, end: float) -> list[ResourcePoint]:
        return [
            ResourcePoint(e.t, e.cpu, e.cpu, e.rss, e.rss, e.gpu_use, e.gpu_memory, e.disk_used, e.load)
            for e in self._events(
                "SELECT body FROM fact WHERE kind = 'resources' AND key = ? AND t >= ? AND t <= ? ORDER BY t, body",
                process,
                start,
                end,
            )
            if isinstance(e, Resources)
        ]

    def disk(self, window: float = 3600.0, at: float | None = None) -> Disk | None:
        with self.snapshot():
            now = self._last(Resources, "", at)
            if now is None or now.disk_free is None:
                return None
            first = self._events(
                "SELECT body FROM fact WHERE kind = 'resources' AND key = '' AND t >= ? ORDER BY t LIMIT 1",
                now.t - window,
            )
            then = first[0] if first and isinstance(first[0], Resources) else None
            rate = None
            if then and then.disk_free is not None and now.t - then.t >= 60:
                rate = (then.disk_free - now.disk_free) / (now.t - then.t)
            eta = now.disk_free / rate if rate and rate > 0 else None
            return Disk(now.t, now.disk_free, now.disk_used, rate, eta)
