"""Pages of episodes against brute force, and past moments against an index that knows no more than the past."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs_story import BEGIN, make_run, story, write

from harbortui.runs.layout import Run
from harbortui.runs.queries import EpisodeFilter, Queries
from harbortui.runs.queries.finding import SORTS
from harbortui.runs.reading import open_queries

filters = st.builds(
    EpisodeFilter,
    task=st.sampled_from([None, "task-0", "nowhere"]),
    cause=st.sampled_from([None, "solved", "environment"]),
    worker=st.sampled_from([None, "rollouts-0"]),
    state=st.sampled_from([None, "queued", "running", "finished", "lost"]),
    reward_low=st.sampled_from([None, 0.1]),
    reward_high=st.sampled_from([None, 0.9]),
    superseded=st.booleans(),
    eval=st.sampled_from([None, False, True]),
)


@pytest.fixture(scope="module")
def storied(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("storied") / "run")
    write(run, story(11, 60))
    return run


@settings(max_examples=60)
@given(
    wanted=filters,
    sort=st.sampled_from(list(SORTS)),
    descending=st.booleans(),
    limit=st.sampled_from([1, 3, 7]),
    after=st.none() | st.floats(0, 2500),
)
def test_pages_put_together_are_the_whole_list_in_order(
    storied: Run, wanted: EpisodeFilter, sort: str, descending: bool, limit: int, after: float | None
) -> None:
    at = None if after is None else BEGIN + after
    with open_queries(storied) as queries:
        whole = queries.episodes(wanted, sort, descending, limit=10_000, at=at).rows
        pages, key = [], None
        while True:
            page = queries.episodes(wanted, sort, descending, limit=limit, after=key, at=at)
            pages += page.rows
            if page.after is None:
                break
            key = msgspec.convert(msgspec.to_builtins(page.after), tuple)
        assert pages == whole
        assert queries.episode_count(wanted, at=at) == len(whole)
        everything = queries.episodes(EpisodeFilter(superseded=True), limit=10_000, at=at).rows
        assert sorted((r.id, r.n) for r in whole) == sorted((r.id, r.n) for r in everything if _fits(r, wanted))
        if sort != "tokens":
            name = {"recent": "moment"}.get(sort, sort)
            values = [value for row in whole if (value := getattr(row, name)) is not None]
            assert values == sorted(values, reverse=descending)


def _fits(row, wanted: EpisodeFilter) -> bool:  # type: ignore[no-untyped-def]
    return (
        all(getattr(wanted, name) in (None, getattr(row, name)) for name in ("task", "cause", "worker", "eval"))
        and (wanted.reward_low is None or (row.reward is not None and row.reward >= wanted.reward_low))
        and (wanted.reward_high is None or (row.reward is not None and row.reward <= wanted.reward_high))
        and (wanted.state in (None, row.state))
        and (not row.superseded or (wanted.superseded and wanted.state in (None, "finished")))
    )


# --- the time machine ---


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.floats(0, 1))
def test_a_past_moment_shows_what_an_index_of_only_the_events_until_then_shows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cut: float
) -> None:
    told = story(seed)
    at = told[int(cut * (len(told) - 1))][1].t
    folder = tmp_path_factory.mktemp("machine")
    full, short = make_run(folder / "full"), make_run(folder / "short")
    write(full, told)
    write(short, [each for each in told if each[1].t <= at])
    with open_queries(full) as now, open_queries(short) as then:
        names = "run processes running totals live_episodes rates steps mission disk"
        for name in (names + " checkpoints alarms alarm_history actions notes").split():
            assert _answer(now, name, at) == _answer(then, name, at), name
        for metric in then.metric_names():
            assert now.series(metric, at=at) == then.series(metric)
        for sort in SORTS:
            rows = (q.episodes(EpisodeFilter(superseded=True), sort, limit=999, at=at).rows for q in (now, then))
            assert [_timeless(row) for row in next(rows)] == [_timeless(row) for row in next(rows)]
        for number in range(3):
            pair = [[(a.phases, a.turns, a.holds) for a in q.episode(f"e{number}", at=at)] for q in (now, then)]
            assert pair[0] == pair[1]


def _answer(queries: Queries, name: str, at: float) -> object:
    answer = getattr(queries, name)(at=at)
    if name == "steps":
        return [msgspec.structs.replace(row, counted=None) for row in answer]
    if name == "live_episodes":
        return msgspec.structs.replace(answer, rows=[_timeless(row) for row in answer.rows])
    return answer


def _timeless(row: object) -> object:
    """A row without the step, which a group gives to its episodes when it is trained, also for the past."""
    return msgspec.structs.replace(row, step=None)
