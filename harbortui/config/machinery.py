"""The sections of a config that say how a run is watched over, and the knobs of the demo."""

from typing import Literal

from pydantic import Field

from harbortui.config.section import Section


class Supervision(Section):
    """When a guard speaks up, how processes are stopped, how logs are kept."""

    silence_seconds: float = Field(default=120.0, gt=0)
    """A process that journals nothing for so long, outside a phase of known length, raises an alarm."""
    phase_factor: float = Field(default=6.0, gt=1)
    """A phase that takes this many times its own median raises an alarm."""
    disk_minutes: float = Field(default=30.0, ge=0)
    """A disk that will be full within so many minutes holds the run; 0 turns this off."""
    memory_percent: float = Field(default=95.0, gt=0, le=100)
    """Memory of the machine in use, in percent, from which an alarm is raised."""
    failures: int = Field(default=3, ge=1)
    """Failures of one process in a row, without progress between them, that stop the run."""
    stop_seconds: float = Field(default=20.0, gt=0)
    """Time between asking a process to end and killing it."""
    log_bytes: int = Field(default=64 * 1024 * 1024, ge=4096)
    """Size at which a log is rotated, in bytes."""
    log_files: int = Field(default=4, ge=1)
    """Rotated logs that are kept per process."""


class Fault(Section):
    """Something that goes wrong in the demo, on purpose."""

    process: str = Field(min_length=1)
    """The process that it happens to."""
    after: float = Field(ge=0)
    """Seconds after the start of that process."""
    do: Literal["die", "exit", "hang", "flood", "ignore-sigterm", "fork", "stop-journal"]
    """What it does."""
    amount: float | None = Field(default=None, gt=0)
    """How much: the exit code, the lines per second of a flood, the children of a fork."""


class Demo(Section):
    """The demo backend: real processes, invented episodes. The seed is `run.seed`."""

    rate: float = Field(default=50.0, gt=0, le=100_000)
    """Events per second, of all processes together. Can change while the run is live."""
    workers: int = Field(default=2, ge=1, le=256)
    """Rollout workers."""
    episodes: int = Field(default=16, ge=1, le=100_000)
    """Episodes that are live at once."""
    steps: int = Field(default=200, ge=1)
    """Steps after which the demo is done, where `run.budget` names none."""
    step_seconds: float = Field(default=2.0, gt=0)
    """Length of a step."""
    log_lines_per_second: float = Field(default=5.0, ge=0, le=1_000_000)
    """Log lines of each process."""
    faults: list[Fault] = Field(default_factory=list)
    """What goes wrong, and when."""

    def processes(self) -> list[str]:
        """The processes that a fault can happen to."""
        return ["server", "orchestrator", "trainer", *(f"rollouts-{index}" for index in range(self.workers))]
