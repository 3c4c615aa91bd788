"""Sums over episodes, as the rollups hold them."""

from collections.abc import Mapping, Sequence

import msgspec

from harbortui.runs.events import CAUSES, POLICY_CAUSES
from harbortui.runs.index.rollups import MICRO, TALLY

SUMS = ", ".join(f"coalesce(sum({name}), 0)" for name in TALLY)
PLAIN = ", ".join(TALLY)


class Totals(msgspec.Struct, frozen=True):
    """Episodes that ended (`n`), those that are the policy's own, and the rest by cause (`left_out`, never a reward).

    `honest_reward` is the mean over the policy's own, `solve_rate` their share that was solved; None over none.
    """

    n: int = 0
    own: int = 0
    solved: int = 0
    retried: int = 0
    reward: float = 0.0
    honest_reward: float | None = None
    solve_rate: float | None = None
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    causes: dict[str, int] = {}
    left_out: dict[str, int] = {}


def totals(values: Sequence[int] | Mapping[str, int]) -> Totals:
    """From the columns of TALLY, in order or by name."""
    got = values if isinstance(values, Mapping) else dict(zip(TALLY, values, strict=True))
    causes = {cause: count for cause in CAUSES if (count := got.get(f"c_{cause}", 0))}
    own, reward = got.get("own", 0), got.get("reward", 0) / MICRO
    return Totals(
        n=got.get("n", 0),
        own=own,
        solved=got.get("solved", 0),
        retried=got.get("retried", 0),
        reward=reward,
        honest_reward=reward / own if own else None,
        solve_rate=got.get("solved", 0) / own if own else None,
        turns=got.get("turns", 0),
        prompt_tokens=got.get("prompt", 0),
        completion_tokens=got.get("completion", 0),
        seconds=got.get("ms", 0) / 1000,
        causes=causes,
        left_out={cause: count for cause, count in causes.items() if cause not in POLICY_CAUSES},
    )
