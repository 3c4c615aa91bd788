"""One attempt of an episode as a row: what its events say, merged so that their order does not matter.

Guarantees: `take` of the same events in any order, any number of times, gives the same row. Of several events of one
kind the earliest counts (the first verdict stands); at the same instant the checksum of the line decides. What the row
adds to the rollups is a function of the row and its phases alone (`parts`).
"""

import json

import msgspec

from harbortui.runs.events import POLICY_CAUSES, EpisodeFinished, EpisodeQueued, EpisodeStarted, Event
from harbortui.runs.index.rollups import BUCKET_SECONDS, SLOT_SECONDS, Pairs, Part, bin_of, bounded, micro

NEVER = 2.0**33


class Attempt(msgspec.Struct):
    """The columns of table `episode`, in order. `superseded` is when a newer attempt of the episode began."""

    e: int
    id: str
    n: int
    attempt: int = 0
    first: float = NEVER
    superseded: float | None = None
    queued: float | None = None
    queued_tie: int = 0
    queued_task: str = ""
    queued_step: int | None = None
    grp: str = ""
    policy: int = 0
    eval: int = 0
    started: float | None = None
    started_tie: int = 0
    started_task: str = ""
    worker: str = ""
    trial: str = ""
    agent: str = ""
    model: str = ""
    finished: float | None = None
    finished_tie: int = 0
    cause: str | None = None
    reward: float | None = None
    turns: int | None = None
    prompt: int | None = None
    completion: int | None = None
    seconds: float | None = None
    end_policy: int = 0
    cost: float | None = None
    error: str = ""
    path: str = ""
    flags: str = ""
    task: str = ""
    step: int | None = None
    moment: float = 0.0
    tokens: int | None = None

    def touch(self, event: Event) -> bool:
        """Any event of this attempt: when it was first heard of, and in which attempt of the run last."""
        changed = event.t < self.first or event.attempt > self.attempt
        self.first = min(self.first, event.t)
        self.attempt = max(self.attempt, event.attempt)
        return changed

    def queue(self, event: EpisodeQueued, tie: int) -> bool:
        if not _earlier(event.t, tie, self.queued, self.queued_tie):
            return False
        self.queued, self.queued_tie = event.t, tie
        self.queued_task, self.queued_step, self.grp = event.task, event.step, event.group
        self.policy, self.eval = event.policy, int(event.eval)
        return True

    def start(self, event: EpisodeStarted, tie: int) -> bool:
        if not _earlier(event.t, tie, self.started, self.started_tie):
            return False
        self.started, self.started_tie = event.t, tie
        self.started_task, self.worker, self.trial = event.task, event.worker, event.trial
        self.agent, self.model = event.agent, event.model
        return True

    def finish(self, event: EpisodeFinished, tie: int) -> bool:
        if not _earlier(event.t, tie, self.finished, self.finished_tie):
            return False
        self.finished, self.finished_tie = event.t, tie
        self.cause, self.reward, self.turns = event.cause, event.reward, event.turns
        self.prompt, self.completion, self.seconds = event.prompt_tokens, event.completion_tokens, event.seconds
        self.end_policy, self.cost, self.error, self.path = event.policy, event.cost, event.error, event.path
        self.flags = json.dumps(event.flags) if event.flags else ""
        return True

    def derive(self, group_step: int | None) -> None:
        self.task = self.queued_task or self.started_task
        self.step = self.queued_step if group_step is None else group_step
        self.moment = max(self.finished or 0.0, self.started or 0.0, self.queued or 0.0, self.first)
        self.tokens = None if self.completion is None else bounded(self.completion + (self.prompt or 0))


def _earlier(t: float, tie: int, known: float | None, known_tie: int) -> bool:
    return known is None or (t, tie) < (known, known_tie)


COLUMNS = Attempt.__struct_fields__


def bucket(t: float) -> int:
    return int(t // BUCKET_SECONDS) * BUCKET_SECONDS


def tally(row: Attempt) -> Pairs:
    """What a finished attempt that counts is worth. Only the policy's own episodes have a reward; no verdict is 0."""
    own = row.cause in POLICY_CAUSES
    return (
        ("n", 1),
        ("own", int(own)),
        ("solved", int(row.cause == "solved")),
        ("reward", micro(row.reward or 0.0) if own else 0),
        ("turns", bounded(row.turns or 0)),
        ("prompt", bounded(row.prompt or 0)),
        ("completion", bounded(row.completion or 0)),
        ("ms", bounded((row.seconds or 0.0) * 1000)),
        (f"c_{row.cause}", 1),
    )


_STARTED: Pairs = (("started", 1),)
_ENDED: Pairs = (("ended", 1),)
_RETRIED: Pairs = (("retried", 1),)


def parts(row: Attempt) -> list[Part]:
    """Everything the row adds to the rollups. In the time buckets a superseded end is taken back when it was."""
    found: list[Part] = []
    if row.started is not None:
        found.append(("bucket", (row.eval, bucket(row.started)), _STARTED))
    if row.finished is None:
        return found
    worth = tally(row)
    found.append(("bucket", (row.eval, bucket(row.finished)), worth + _ENDED))
    if row.superseded is not None:
        back = tuple((column, -value) for column, value in worth) + _RETRIED
        found.append(("bucket", (row.eval, bucket(max(row.superseded, row.finished))), back))
        worth = _RETRIED
    found.append(("task_tally", (row.eval, row.task), worth))
    if row.step is not None:
        found.append(("step_tally", (row.eval, row.attempt, row.step), worth))
        found.append(("heat", (row.eval, row.task, row.attempt, row.step), worth))
    if row.grp:
        found.append(("group_tally", (row.grp,), worth))
    return found


def phase_lengths(
    phases: list[tuple[float, str]], held: list[tuple[float, float]], finished: float
) -> list[tuple[str, float, float]]:
    """(phase, began, seconds) of each phase; time that the episode was held in it does not count."""
    lengths = []
    for (began, phase), (ended, _) in zip(phases, [*phases[1:], (finished, "")], strict=True):
        let_go = sum(seconds for t, seconds in held if began < t <= ended)
        lengths.append((phase, began, max(0.0, ended - began - let_go)))
    return lengths


def phase_parts(phases: list[tuple[float, str]], held: list[tuple[float, float]], finished: float) -> list[Part]:
    return [
        ("phase_length", (phase, int(began // SLOT_SECONDS), bin_of(seconds)), ())
        for phase, began, seconds in phase_lengths(phases, held, finished)
    ]
