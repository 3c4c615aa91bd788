"""The typed events of a run: everything that any process ever says about what happened.

Guarantees: an event is one JSON object on one line, tagged by `kind`. Fields may be added, never renamed;
a reader skips unknown fields and hands unknown kinds back as `Unknown`, so that a journal written by a
newer version is kept and read as far as it is understood. A number that was no number (a NaN loss) is written as
null and read as absent. Whole numbers fit an index (64 bits), times lie between 1970 and 2242. Nothing here does I/O.

On failure: `decode` raises `BadEvent` with the reason for a line that is no event; it never raises anything else.
"""

import time
from typing import Annotated, Any, ClassVar, Literal, TypeGuard, Union, get_args

import msgspec

SCHEMA = 1

RunState = Literal[
    "preparing", "running", "pausing", "paused", "holding", "stopping", "suspended", "finished", "failed", "lost"
]
ENDED: frozenset[str] = frozenset({"suspended", "finished", "failed", "lost"})
ProcessState = Literal["waiting", "starting", "ready", "running", "backoff", "stopping", "exited", "failed"]
ALIVE: frozenset[str] = frozenset({"starting", "ready", "running", "stopping"})
Cause = Literal[
    "solved", "failed", "context", "truncated", "timeout_agent", "timeout_verifier",
    "format", "verifier", "environment", "server", "cancelled", "internal",
]  # fmt: skip
CAUSES: tuple[str, ...] = get_args(Cause)
POLICY_CAUSES: frozenset[str] = frozenset({"solved", "failed", "context", "truncated", "timeout_agent", "format"})
Severity = Literal["info", "warning", "critical"]

Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=2**33)]


class Event(msgspec.Struct, tag_field="kind", omit_defaults=True, kw_only=True):
    """What every event carries: `t` wall and `m` monotonic seconds, stamped by the journal, and the run's attempt."""

    t: Moment = 0.0
    m: float = 0.0
    attempt: Whole = 0
    demo: bool = False
    version: Whole = SCHEMA
    kind: ClassVar[str]


class JournalOpened(Event, tag="journal", kw_only=True):
    """First line of every journal: who writes it. Written again when a journal is opened again."""

    process: str
    role: str
    pid: Whole
    host: str = ""
    boot: str = ""


class RunChanged(Event, tag="run", kw_only=True):
    """The run entered a state. `level` is the pause level when pausing or paused; an attempt that goes on from a
    checkpoint says its step in `resumed_from`: later steps of older attempts are superseded from then on."""

    state: RunState
    reason: str = ""
    level: str = ""
    resumed_from: Whole | None = None
    backend: str = ""
    name: str = ""


class ProcessChanged(Event, tag="process", kw_only=True):
    """A process of the plan entered a state; `tail` holds the last log lines of one that died."""

    process: str
    role: str
    state: ProcessState
    pid: Whole = 0
    reason: str = ""
    code: Whole | None = None
    signal: Whole | None = None
    restarts: Whole = 0
    died: float | None = None
    tail: list[str] = []


class Resources(Event, tag="resources", kw_only=True):
    """A sample of one process with all its descendants; process "" is the host."""

    process: str
    cpu: float = 0.0
    rss: Whole = 0
    count: Whole = 1
    gpu_memory: Whole | None = None
    gpu_use: float | None = None
    disk_free: Whole | None = None
    disk_used: Whole | None = None
    memory_free: Whole | None = None
    load: float | None = None


class Activity(Event, tag="activity", kw_only=True):
    """What a process does from now on (`sampling`, `training`, `publishing`, `idle`, `waiting`), on whom it waits."""

    doing: str
    on: str = ""


class EpisodeQueued(Event, tag="episode.queued", kw_only=True):
    id: str
    n: Whole = 1
    task: str = ""
    group: str = ""
    policy: Whole = 0
    step: Whole | None = None
    eval: bool = False


class EpisodeStarted(Event, tag="episode.started", kw_only=True):
    id: str
    n: Whole = 1
    worker: str = ""
    task: str = ""
    trial: str = ""
    agent: str = ""
    model: str = ""


class EpisodePhase(Event, tag="episode.phase", kw_only=True):
    id: str
    n: Whole = 1
    phase: str


class EpisodeTurn(Event, tag="episode.turn", kw_only=True):
    """One turn of the agent, told when the answer arrived."""

    id: str
    n: Whole = 1
    turn: Whole
    prompt_tokens: Whole = 0
    completion_tokens: Whole = 0
    context: float | None = None
    commands: list[str] = []
    policy: Whole = 0
    seconds: float | None = None
    logprob: float | None = None


class EpisodeHeld(Event, tag="episode.held", kw_only=True):
    """Held at its next model call (`held`), or let go on after `seconds` (`held=False`)."""

    id: str
    n: Whole = 1
    held: bool
    seconds: float = 0.0


class EpisodeFinished(Event, tag="episode.finished", kw_only=True):
    """The end of one attempt of an episode: exactly one cause; `reward` None where no verdict exists."""

    id: str
    n: Whole = 1
    cause: Cause
    reward: float | None = None
    turns: Whole = 0
    prompt_tokens: Whole = 0
    completion_tokens: Whole = 0
    seconds: float = 0.0
    policy: Whole = 0
    cost: float | None = None
    error: str = ""
    path: str = ""
    flags: list[str] = []


class GroupChanged(Event, tag="group", kw_only=True):
    id: str
    state: Literal["opened", "complete", "trained", "dropped"]
    task: str = ""
    size: Whole = 0
    policy: Whole = 0
    step: Whole | None = None
    reason: str = ""


class StepDone(Event, tag="step", kw_only=True):
    """One optimizer update. `reward` is the reported mean; `honest_reward` lacks what was `left_out`."""

    step: Whole
    policy: Whole = 0
    reward: float | None = None
    honest_reward: float | None = None
    reward_low: float | None = None
    reward_high: float | None = None
    solve_rate: float | None = None
    loss: float | None = None
    entropy: float | None = None
    mismatch_kl: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    tokens: Whole = 0
    seconds: float = 0.0
    episodes: Whole = 0
    left_out: dict[str, Whole] = {}
    total: Whole | None = None


class MetricRow(Event, tag="metrics", kw_only=True):
    """Named values at a step (or without one). Values that are unknown are absent, not 0."""

    values: dict[str, float]
    step: Whole | None = None


class CheckpointChanged(Event, tag="checkpoint", kw_only=True):
    """`asked` -> `writing` -> `whole` (manifest on disk) or `failed`; later `pruned`. `request` is that of a verb."""

    id: str
    state: Literal["asked", "writing", "whole", "failed", "pruned"]
    step: Whole = 0
    path: str = ""
    bytes: Whole = 0
    policy: Whole = 0
    request: str = ""
    reason: str = ""
    score: float | None = None


class PolicyPublished(Event, tag="policy", kw_only=True):
    policy: Whole
    step: Whole = 0
    path: str = ""
    seconds: float | None = None


class AlarmChanged(Event, tag="alarm", kw_only=True):
    """Raised once, cleared once, per `key`. `text` says what is wrong, `remedy` what to do."""

    key: str
    state: Literal["raised", "cleared"]
    text: str = ""
    remedy: str = ""
    severity: Severity = "warning"
    process: str = ""


class OperatorAction(Event, tag="operator", kw_only=True):
    """A verb somebody spoke: `accepted` or `refused` when asked, `true` when what it promised had become so."""

    verb: str
    state: Literal["accepted", "refused", "true", "failed"]
    request: str = ""
    arguments: dict[str, Any] = {}
    user: str = ""
    uid: Whole = -1
    tty: str = ""
    answer: str = ""


class Acknowledged(Event, tag="acknowledged", kw_only=True):
    """A steered process has taken note of the desired state numbered `sequence`."""

    sequence: Whole


class Note(Event, tag="note", kw_only=True):
    text: str
    user: str = ""


class Defect(Event, tag="defect", kw_only=True):
    """A writer's own account of what went wrong with its journal (held on a full disk, made anew, too long)."""

    what: str
    count: Whole = 1
    detail: str = ""


KINDS: dict[str, type[Event]] = {str(cls.__struct_config__.tag): cls for cls in Event.__subclasses__()}


class Unknown(msgspec.Struct):
    """An event of a kind that this version does not know: kept in its journal, counted, skipped."""

    kind: str
    t: float
    body: dict[str, Any]


class BadEvent(ValueError):
    """A line that is no event."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Union[tuple(KINDS.values())])  # noqa: UP007
_loose = msgspec.json.Decoder()


def kind_of(event: Event) -> str:
    return str(type(event).__struct_config__.tag)


def stamp(event: Event, attempt: int, demo: bool = False) -> Event:
    """Fill in time and attempt where the maker left them out."""
    if not event.t:
        event.t = time.time()
    if not event.m:
        event.m = time.monotonic()
    event.attempt = event.attempt or attempt
    event.demo = event.demo or demo
    return event


def encode(event: Event) -> bytes:
    """One line, without its newline. JSON escapes every control character, so a line never holds one."""
    return _encoder.encode(event)


def decode(line: bytes) -> Event | Unknown:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _decode_loosely(line, error)


def _decode_loosely(line: bytes, error: Exception) -> Event | Unknown:
    try:
        body = _loose.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as worse:
        raise BadEvent(str(worse)) from None
    if not isinstance(body, dict) or not isinstance(body.get("kind"), str):
        raise BadEvent("no event: " + str(error))
    if cls := KINDS.get(body["kind"]):
        try:
            event: Event = msgspec.convert(_without_nulls(body), cls)
            return event
        except (msgspec.ValidationError, RecursionError):
            if body.get("version", SCHEMA) == SCHEMA:
                raise BadEvent(str(error)) from None
    t = body.get("t")
    return Unknown(kind=body["kind"], t=float(t) if _is_moment(t) else 0.0, body=body)


def _is_moment(t: Any) -> TypeGuard[float]:
    return isinstance(t, (int, float)) and 0 <= t < 2**33


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return value
