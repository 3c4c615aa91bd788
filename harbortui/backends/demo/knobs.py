"""What a demo's processes must know of the config, handed to them in one environment variable."""

import os

import msgspec

STARTS = "starts; nothing here is real"


class Knobs(msgspec.Struct):
    seed: int
    rate: float
    workers: int
    episodes: int
    steps: int
    seconds: float
    step_seconds: float
    log_lines: float
    group_size: int
    groups_per_step: int
    max_turns: int
    context_limit: int
    checkpoint_every: int
    keep_last: int
    learning_rate: float


class Fault(msgspec.Struct):
    process: str
    after: float
    do: str
    amount: float | None = None


def knobs() -> Knobs:
    return msgspec.json.decode(os.environ["HARBORTUI_DEMO_KNOBS"], type=Knobs)


def faults() -> list[Fault]:
    return msgspec.json.decode(os.environ.get("HARBORTUI_DEMO_FAULTS", "[]"), type=list[Fault])
