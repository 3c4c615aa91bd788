"""The questions that screens ask, now and at past moments."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from runs_story import BEGIN, Told, make_run, write

from harbortui.runs import events as ev
from harbortui.runs.queries import EpisodeFilter, Queries
from harbortui.runs.reading import open_queries

SUPERVISOR = "supervisor"


class Teller:
    """Tells events to a run and asks it; seconds count from BEGIN."""

    def __init__(self, path: Path) -> None:
        self.run = make_run(path)
        self.told: list[Told] = []

    def say(self, seconds: float, event: ev.Event, process: str = SUPERVISOR, attempt: int = 1) -> None:
        event.t, event.m, event.attempt = BEGIN + seconds, seconds + 5, attempt
        self.told.append((process, event))

    def ask(self) -> Queries:
        write(self.run, self.told)
        self.told.clear()
        return open_queries(self.run)


@pytest.fixture
def teller(tmp_path: Path) -> Teller:
    return Teller(tmp_path / "run")


@pytest.fixture
def asked(teller: Teller) -> Iterator[Queries]:
    """Two episodes of a group, one retried after its sandbox broke, the other still held in its second phase."""
    say = teller.say
    say(0, ev.RunChanged(state="running", name="r", backend="demo"))
    say(1, ev.GroupChanged(id="g", state="opened", task="t", size=2, policy=3), "orchestrator")
    for number in (1, 2):
        say(2, ev.EpisodeQueued(id=f"e{number}", task="t", group="g", policy=3), "orchestrator")
        say(3, ev.EpisodeStarted(id=f"e{number}", worker="w", trial=f"t__{number}"), "w")
        say(3, ev.EpisodePhase(id=f"e{number}", phase="environment"), "w")
    say(13, ev.EpisodeFinished(id="e1", cause="environment", error="no image"), "w")
    say(14, ev.EpisodeQueued(id="e1", n=2, task="t", group="g"), "orchestrator")
    say(15, ev.EpisodeStarted(id="e1", n=2, worker="w"), "w")
    say(15, ev.EpisodePhase(id="e1", n=2, phase="agent"), "w")
    turn = {"prompt_tokens": 100, "completion_tokens": 20, "context": 0.5, "commands": ["ls", "pwd"]}
    say(20, ev.EpisodeTurn(id="e1", n=2, turn=1, **turn), "w")
    say(
        25, ev.EpisodeFinished(id="e1", n=2, cause="solved", reward=1.0, turns=1, completion_tokens=20, seconds=10), "w"
    )
    say(23, ev.EpisodePhase(id="e2", phase="agent"), "w")
    say(24, ev.EpisodeTurn(id="e2", turn=1, completion_tokens=7, context=0.2), "w")
    say(30, ev.EpisodeHeld(id="e2", held=True), "w")
    with teller.ask() as queries:
        yield queries


def test_mission_says_what_lives_and_what_came_of_the_rest(asked: Queries) -> None:
    mission = asked.mission(at=BEGIN + 40)
    assert (mission.live, mission.held, mission.queued) == (1, 1, 0)
    totals = mission.totals
    assert (totals.n, totals.own, totals.solved, totals.retried, totals.honest_reward) == (1, 1, 1, 1, 1.0)
    assert (totals.causes, totals.left_out) == ({"solved": 1}, {})
    before = asked.totals(at=BEGIN + 13.5)
    assert (before.causes, before.left_out, before.honest_reward, before.solve_rate) == (
        {"environment": 1},
        {"environment": 1},
        None,
        None,
    )
    assert mission.run is not None
    assert (mission.run.state, mission.run.name, mission.step, mission.eta_seconds) == ("running", "r", None, None)
    assert mission.tokens_per_minute == pytest.approx(27 * 60 / mission.window)


def test_live_episodes_are_as_they_were_at_the_moment(asked: Queries) -> None:
    (e2,) = asked.live_episodes(at=BEGIN + 40).rows
    assert (e2.id, e2.phase, e2.turn, e2.context, e2.completion_tokens, e2.held) == ("e2", "agent", 1, 0.2, 7, True)
    assert (e2.age, e2.phase_since, e2.task, e2.worker) == (37.0, BEGIN + 23, "t", "w")
    then = asked.live_episodes(at=BEGIN + 18)
    assert [(row.id, row.n, row.phase, row.turn, row.held) for row in then.rows] == [
        ("e2", 1, "environment", 0, False),
        ("e1", 2, "agent", 0, False),
    ]
    assert (then.count, then.held, then.median_age) == (2, 0, 9.0)
    assert asked.running() == (1, 1)
    assert asked.running(at=BEGIN + 26) == (1, 0)


def test_one_episode_is_told_with_all_its_attempts(asked: Queries) -> None:
    first, second = asked.episode("e1")
    assert (first.row.superseded, first.row.cause, first.row.error) == (True, "environment", "no image")
    assert [(p.phase, p.seconds) for p in first.phases] == [("environment", 10.0)]
    assert (second.row.n, second.row.reward, second.row.state) == (2, 1.0, "finished")
    assert [(t.turn, t.commands, t.completion_tokens) for t in second.turns] == [(1, ["ls", "pwd"], 20)]
    (then,) = asked.episode("e1", at=BEGIN + 13.5)
    assert (then.row.superseded, then.row.state) == (False, "finished")
    (e2,) = asked.episode("e2")
    assert [(hold.held, hold.t) for hold in e2.holds] == [(True, BEGIN + 30)]
    assert asked.episode("nobody") == []


def test_a_group_counts_only_the_attempts_that_count(asked: Queries) -> None:
    (group,) = asked.groups(task="t")
    assert (group.id, group.state, group.size, group.policy, group.totals.n, group.totals.solved) == (
        "g",
        "opened",
        2,
        3,
        1,
        1,
    )
    assert asked.group("g") == group
    assert asked.group("h") is None


def test_phases_have_medians_without_the_time_held(teller: Teller) -> None:
    for number in range(9):
        at = number * 100
        name = {"id": f"e{number}"}
        teller.say(at, ev.EpisodeStarted(**name))
        teller.say(at, ev.EpisodePhase(**name, phase="agent"))
        teller.say(at + 50, ev.EpisodeHeld(**name, held=False, seconds=30))
        teller.say(at + 70, ev.EpisodeFinished(**name, cause="failed"))
    with teller.ask() as queries:
        median = queries.phase_medians()["agent"]
        assert median.episodes == 9
        assert median.seconds == pytest.approx(40, rel=0.06)


def test_an_episode_takes_the_step_that_its_group_was_trained_in(teller: Teller) -> None:
    teller.say(1, ev.EpisodeQueued(id="a", task="t", group="g"))
    teller.say(2, ev.EpisodeFinished(id="a", cause="solved", reward=1.0))
    teller.say(3, ev.EpisodeQueued(id="b", task="u", group="h", step=4))
    teller.say(4, ev.EpisodeFinished(id="b", cause="verifier", reward=0.5))
    with teller.ask() as queries:
        assert [row.id for row in queries.episodes(EpisodeFilter(step=7)).rows] == []
        teller.say(9, ev.GroupChanged(id="g", state="trained", step=7))
        teller.ask().close()
        assert [row.id for row in queries.episodes(EpisodeFilter(step=7)).rows] == ["a"]
        cells = [(c.task, c.step, c.n, c.own, c.solved, c.reward) for c in queries.task_heatmap()]
        assert cells == [("t", 7, 1, 1, 1, 1.0), ("u", 4, 1, 0, 0, None)]
        assert [(row.task, row.totals.left_out) for row in queries.tasks()] == [("t", {}), ("u", {"verifier": 1})]


def test_evaluations_are_counted_apart(teller: Teller) -> None:
    for name, evaluation in (("a", False), ("b", True)):
        teller.say(1, ev.EpisodeQueued(id=name, task="t", eval=evaluation))
        teller.say(2, ev.EpisodeFinished(id=name, cause="solved", reward=1.0))
    with teller.ask() as queries:
        assert queries.totals().n == queries.totals(at=BEGIN + 5).n == 1
        assert queries.tasks(eval=True)[0].totals.n == 1
        assert [row.id for row in queries.episodes(EpisodeFilter(eval=True)).rows] == ["b"]


def test_steps_of_an_older_life_are_superseded_from_the_moment_of_the_resume(teller: Teller) -> None:
    for step in range(1, 6):
        teller.say(step * 10, ev.StepDone(step=step, loss=float(step), total=9), "trainer")
        teller.say(step * 10, ev.MetricRow(step=step, values={"kl": float(step)}), "trainer")
    teller.say(60, ev.RunChanged(state="running", resumed_from=3), attempt=2)
    with teller.ask() as queries:
        assert [(row.step, row.attempt) for row in queries.steps()] == [(1, 1), (2, 1), (3, 1)]
        assert queries.mission(at=BEGIN + 61).step == 3
        assert queries.mission(at=BEGIN + 55).step == 5
        teller.say(70, ev.StepDone(step=4, loss=44.0, total=9), "trainer", attempt=2)
        teller.say(70, ev.MetricRow(step=4, values={"kl": 44.0}), "trainer", attempt=2)
        teller.ask().close()
        assert [(row.step, row.attempt, row.loss) for row in queries.steps(limit=2)] == [(3, 1, 3.0), (4, 2, 44.0)]
        everything = [(row.step, row.attempt, row.superseded) for row in queries.steps(superseded=True)]
        assert everything == [(1, 1, False), (2, 1, False), (3, 1, False), (4, 1, True), (4, 2, False), (5, 1, True)]
        for name in ("loss", "kl"):
            assert [(p.x, p.last) for p in queries.series(name).points] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 44.0)]
            assert [p.x for p in queries.series(name, at=BEGIN + 55).points] == [1, 2, 3, 4, 5]
        mission = queries.mission(at=BEGIN + 75)
        assert (mission.step, mission.total, mission.loss, mission.seconds_per_step) == (4, 9, 44.0, 10.0)
        assert mission.eta_seconds == 50.0


def test_a_trainer_that_was_restarted_in_the_same_attempt_supersedes_too(teller: Teller) -> None:
    for at, step in ((10, 1), (20, 2), (30, 3), (40, 2)):
        teller.say(at, ev.StepDone(step=step, loss=float(at)), "trainer")
        teller.say(at, ev.MetricRow(step=step, values={"kl": float(at)}), "trainer")
    with teller.ask() as queries:
        assert [(row.step, row.loss) for row in queries.steps()] == [(1, 10.0), (2, 40.0)]
        for name in ("loss", "kl"):
            assert [(p.x, p.last) for p in queries.series(name).points] == [(1, 10.0), (2, 40.0)]


def test_a_clock_that_was_set_back_supersedes_nothing(teller: Teller) -> None:
    for m, t, step in ((1, 100, 1), (2, 200, 2), (3, 50, 3)):
        teller.say(t, ev.StepDone(step=step), "trainer")
        teller.told[-1][1].m = float(m)
    with teller.ask() as queries:
        assert [row.step for row in queries.steps()] == [1, 2, 3]


def test_a_long_series_keeps_its_spikes(teller: Teller) -> None:
    for step in range(2000):
        teller.say(step, ev.MetricRow(step=step, values={"v": 99.0 if step == 1234 else 0.0}))
        teller.say(step, ev.MetricRow(values={"free": float(step)}))
    with teller.ask() as queries:
        series = queries.series("v", max_points=100)
        assert 90 <= len(series.points) <= 101
        assert max(point.high for point in series.points) == 99.0
        free = queries.series("free", max_points=100)
        assert (series.over, free.over) == ("step", "time")
        assert free.points[-1].last == 1999.0
        assert queries.metric_names() == ["free", "v"]
        assert queries.series("nothing").points == []


def test_processes_are_told_with_what_they_do_and_use(teller: Teller) -> None:
    say = teller.say
    say(1, ev.ProcessChanged(process="trainer", role="trainer", state="ready", pid=7))
    say(2, ev.Resources(process="trainer", cpu=1.5, rss=1000))
    say(3, ev.Activity(doing="waiting", on="rollouts-0"), "trainer")
    say(9, ev.ProcessChanged(process="trainer", role="trainer", state="failed", code=1, restarts=2, tail=["boom"]))
    say(4, ev.Acknowledged(sequence=3), "trainer")
    say(8, ev.Acknowledged(sequence=2), "trainer")
    with teller.ask() as queries:
        (then,), (now,) = queries.processes(at=BEGIN + 5), queries.processes()
        assert (then.state, then.cpu, then.rss, then.doing, then.on) == ("ready", 1.5, 1000, "waiting", "rollouts-0")
        assert (now.state, now.code, now.restarts, now.cpu, now.doing) == ("failed", 1, 2, None, "")
        assert [event.tail for event in queries.process_events("trainer")] == [["boom"], []]
        assert queries.acknowledged("trainer") == 3
        assert queries.acknowledged("trainer", since=BEGIN + 5) == 2
        assert queries.acknowledged("nobody") == 0
        spans = [(s.process, s.doing, s.began, s.ended) for s in queries.timeline(BEGIN + 3.5, BEGIN + 9)]
        assert spans == [("trainer", "waiting", BEGIN + 3, None)]


def test_resources_of_a_long_window_are_means_and_highs_of_minutes(teller: Teller) -> None:
    for i in range(240):
        teller.say(i * 30, ev.Resources(process="w", cpu=9.0 if i == 100 else 1.0, rss=10, gpu_use=0.5))
        teller.say(i * 30, ev.Resources(process="", disk_free=10_000_000 - i * 30 * 100, disk_used=i, load=2.0))
    with teller.ask() as queries:
        points = queries.resources("w", BEGIN, BEGIN + 7200, points=30)
        assert len(points) in (30, 31)
        assert max(point.cpu_high for point in points) == 9.0
        assert {point.gpu_use for point in points} == {0.5}
        assert len(queries.resources("w", BEGIN, BEGIN + 870)) == 30
        disk = queries.disk()
        assert disk is not None
        assert disk.rate == pytest.approx(100)
        assert disk.eta_seconds == pytest.approx(disk.free / 100)
        assert queries.disk(at=BEGIN - 1) is None


def test_the_book_tells_checkpoints_alarms_and_actions(teller: Teller) -> None:
    say = teller.say
    for at, state in ((1, "asked"), (2, "writing"), (5, "whole"), (50, "pruned")):
        say(at, ev.CheckpointChanged(id="c1", state=state, step=4, path="checkpoints/x", request="r1"), "orchestrator")
    say(1, ev.OperatorAction(verb="checkpoint", state="accepted", request="r1", user="ada"))
    say(5, ev.OperatorAction(verb="checkpoint", state="true", request="r1"))
    say(6, ev.AlarmChanged(key="disk", state="raised", text="full soon", severity="critical"))
    say(8, ev.AlarmChanged(key="disk", state="cleared"))
    say(9, ev.AlarmChanged(key="gpu", state="raised", text="hot"))
    say(10, ev.Note(text="looks good", user="ada"))
    with teller.ask() as queries:
        (row,) = queries.checkpoints(at=BEGIN + 10)
        assert (row.state, row.asked, row.whole, row.step) == ("whole", BEGIN + 1, BEGIN + 5, 4)
        assert queries.checkpoints()[0].state == "pruned"
        (action,) = queries.actions()
        assert (action.verb, action.user, action.state, action.became_true) == ("checkpoint", "ada", "true", BEGIN + 5)
        assert [alarm.key for alarm in queries.alarms()] == ["gpu"]
        assert [alarm.key for alarm in queries.alarms(at=BEGIN + 7)] == ["disk"]
        history = [(a.key, a.raised - BEGIN, a.cleared and a.cleared - BEGIN) for a in queries.alarm_history()]
        assert history == [("gpu", 9, None), ("disk", 6, 8)]
        assert [note.text for note in queries.notes()] == ["looks good"]


def test_a_run_that_ended_has_nothing_alive(teller: Teller) -> None:
    teller.say(0, ev.RunChanged(state="running", backend="demo"))
    teller.say(1, ev.EpisodeStarted(id="a"))
    teller.say(5, ev.RunChanged(state="suspended", reason="asked"))
    teller.say(9, ev.RunChanged(state="running"), attempt=2)
    teller.say(9, ev.EpisodeStarted(id="b"), attempt=2)
    with teller.ask() as queries:
        run = queries.run(at=BEGIN + 6)
        assert run is not None
        assert (run.state, run.ended, run.backend, run.reason) == ("suspended", BEGIN + 5, "demo", "asked")
        assert [queries.running(at=BEGIN + t)[0] for t in (2, 6, 10)] == [1, 0, 1]
        assert [row.state for row in queries.episodes(at=BEGIN + 2).rows] == ["running"]
        assert [row.state for row in queries.episodes(at=BEGIN + 6).rows] == ["lost"]
        assert [(row.id, row.state) for row in queries.episodes().rows] == [("b", "running"), ("a", "lost")]
        assert [row.id for row in queries.episodes(EpisodeFilter(state="lost")).rows] == ["a"]
        assert queries.run(at=BEGIN - 1) is None


def test_an_empty_run_has_answers_too(teller: Teller) -> None:
    with teller.ask() as queries:
        mission = queries.mission()
        assert (mission.run, mission.step, mission.live, mission.totals.n) == (None, None, 0, 0)
        assert queries.last_moment() == 0.0
        for question in ("processes", "steps", "tasks", "groups", "checkpoints", "alarms", "defects", "metric_names"):
            assert getattr(queries, question)() == []
        assert queries.episodes().rows == []
        assert queries.live_episodes().median_age is None


def test_strings_of_agents_come_back_as_they_are(teller: Teller) -> None:
    evil = "\x1b[31mred\x00\u202e'; DROP TABLE episode; --"
    teller.say(1, ev.EpisodeQueued(id=evil, task=evil))
    teller.say(2, ev.EpisodeTurn(id=evil, turn=1, commands=[evil]))
    with teller.ask() as queries:
        assert [row.task for row in queries.episodes(EpisodeFilter(task=evil)).rows] == [evil]
        assert queries.episode(evil)[0].turns[0].commands == [evil]


# --- pages ---
