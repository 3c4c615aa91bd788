"""What all backends put into their plans alike: the indexer, limits, live keys, notifications."""

import shlex
import sys

from harbortui.config.machinery import Supervision
from harbortui.config.schema import LIVE, RunConfig
from harbortui.runs.layout import Run
from harbortui.supervisor.plan import LiveKey, Notify, ProcessSpec, Restart, Watch


def indexer(run: Run) -> ProcessSpec:
    """Always restarted; its death never means anything for the run."""
    return ProcessSpec(
        name="indexer",
        role="indexer",
        command=[sys.executable, "-m", "harbortui.runs.indexer", str(run.path)],
        restart=Restart(policy="always", budget=1_000_000, backoff=0.2, backoff_max=10),
        on_death="ignore",
        auxiliary=True,
    )


def restart(supervision: Supervision) -> Restart:
    return Restart(policy="on-failure", budget=supervision.failures)


def watch(supervision: Supervision) -> Watch:
    return Watch(
        silence=supervision.silence_seconds,
        phase_factor=supervision.phase_factor,
        disk_minutes=supervision.disk_minutes,
        memory_percent=supervision.memory_percent,
        log_bytes=supervision.log_bytes,
        log_files=supervision.log_files,
    )


def notify(config: RunConfig) -> Notify:
    wanted = config.run.notify
    return Notify(bell=wanted.bell, command=shlex.split(wanted.command or ""), webhook=wanted.webhook or "")


def live_keys() -> dict[str, LiveKey]:
    found = {}
    for key, live in LIVE.items():
        schema = live.check.json_schema()
        found[key] = LiveKey(
            kind="int" if live.type is int else "float",
            minimum=schema.get("minimum"),
            maximum=schema.get("maximum"),
            above=schema.get("exclusiveMinimum"),
        )
    return found
