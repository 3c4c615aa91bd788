"""The watchdog says what is wrong, once, in words, and who waits for whom."""

from harbortui.supervisor.alarms import AlarmBook
from harbortui.supervisor.plan import Watch
from harbortui.supervisor.watchdog import Facts, Late, Seen, duration, look

GIB = 1 << 30


def texts(facts: Facts, watch: Watch | None = None) -> list[str]:
    return [alarm.text for alarm in look(facts, watch or Watch())]


def worker(i: int, **more: object) -> Seen:
    return Seen(f"rollouts-{i}", "rollouts", "running", **more)  # type: ignore[arg-type]


def test_a_healthy_run_raises_nothing() -> None:
    busy = Seen("trainer", "trainer", "running", quiet=3.0, doing="training", lasting=8.0, median=7.0)
    assert texts(Facts("running", [busy], disk_free=50 * GIB, disk_slope=-1000.0, index_behind=10)) == []


def test_silence_is_told_with_what_the_process_was_doing() -> None:
    silent = Seen("trainer", "trainer", "running", quiet=300.0, doing="training")
    assert texts(Facts("running", [silent])) == ["trainer has said nothing for 5 min while training"]


def test_nobody_is_silent_while_the_run_is_paused_or_the_process_waits() -> None:
    silent = Seen("trainer", "trainer", "running", quiet=300.0, doing="training")
    assert texts(Facts("paused", [silent])) == []
    waiting = Seen("trainer", "trainer", "running", quiet=300.0, doing="waiting", on="orchestrator")
    assert texts(Facts("running", [waiting])) == []


def test_a_phase_is_judged_by_its_own_median() -> None:
    slow = Seen("trainer", "trainer", "running", doing="training", lasting=100.0, median=10.0)
    assert texts(Facts("running", [slow])) == ["trainer is training for 100 s; its median is 10 s"]
    usual = Seen("trainer", "trainer", "running", doing="training", lasting=100.0, median=90.0)
    assert texts(Facts("running", [usual])) == []


def test_who_waits_for_whom_is_one_alarm_for_all_that_wait() -> None:
    late = [worker(i, doing="waiting", on="server", lasting=60.0 + i, median=2.0) for i in range(3)]
    seen = [*late, worker(3, doing="sampling", lasting=1.0, median=2.0)]
    assert texts(Facts("running", seen)) == ["3 of 4 rollouts wait for server since 62 s (median 2.0 s)"]
    alone = Seen("orchestrator", "orchestrator", "running", doing="waiting", on="rollouts-0", lasting=42.0, median=7.0)
    assert texts(Facts("running", [alone]), Watch(phase_factor=5)) == [
        "orchestrator waits for rollouts-0 since 42 s (median 7.0 s)"
    ]


def test_stragglers_are_one_alarm_that_names_the_worst() -> None:
    late = [Late("ep-1", "verifier", 50.0), Late("ep-2", "agent", 400.0), Late("ep-3", "verifier", 300.0)]
    facts = Facts("running", [], late=late, usual={"verifier": 10.0, "agent": 100.0})
    assert texts(facts) == ["an episode is late, the worst ep-3: in verifier for 5 min (median 10 s)"]


def test_a_filling_disk_is_told_ahead_of_time() -> None:
    assert texts(Facts("running", [], disk_free=6 * GIB, disk_slope=-GIB / 300)) == [
        "the disk will be full in about 30 min (6.0 GiB free)"
    ]
    assert texts(Facts("running", [], disk_free=GIB // 2)) == ["the disk is nearly full: 0.5 GiB free"]


def test_a_jumping_clock_is_told_and_nothing_else() -> None:
    busy = Seen("trainer", "trainer", "running", quiet=1.0, doing="training", lasting=None, median=7.0)
    assert texts(Facts("running", [busy], clock_jump=-7200.0)) == [
        "the clock jumped back by 2.0 h; times before and after do not compare"
    ]


def test_what_keeps_failing_is_told_until_it_stands() -> None:
    failing = Seen("server", "server", "backoff", "exited with 1", failures=2)
    assert texts(Facts("preparing", [failing])) == ["server has ended 2 times in a row, each time soon: exited with 1"]
    once = Seen("server", "server", "backoff", "killed by SIGKILL", failures=1)
    assert texts(Facts("running", [once])) == []


def test_an_index_that_does_not_come_forward_is_told() -> None:
    assert texts(Facts("running", [], index_behind=100, index_stuck=20.0)) == [
        "the index has not come forward for 20 s; what is shown is old"
    ]
    assert texts(Facts("running", [], index_behind=None, index_stuck=20.0)) == [
        "there is no index that can be read; states that have to be seen there cannot be told"
    ]
    assert texts(Facts("running", [], index_behind=0, index_stuck=20.0)) == []


def test_memory_and_a_lagging_index_and_unwritten_events_are_told() -> None:
    facts = Facts("running", [], memory_percent=97.2, index_behind=200 << 20, journal_pending=3)
    assert texts(facts) == [
        "97 % of this machine's memory is in use; the kernel will soon kill a process",
        "the supervisor holds 3 events that it cannot write",
        "the index is 200 MiB behind the journals; what is shown is old",
    ]


def test_an_alarm_is_raised_once_and_cleared_once() -> None:
    book = AlarmBook({})
    bad = look(Facts("running", [], disk_free=GIB // 2), Watch())
    assert [(e.key, e.state) for e in book.settle(bad)] == [("disk", "raised")]
    assert book.settle(bad) == []
    assert [(e.key, e.state) for e in book.settle([])] == [("disk", "cleared")]
    assert book.settle([]) == []


def test_an_alarm_that_becomes_graver_is_told_again() -> None:
    book = AlarmBook({})
    forecast = look(Facts("running", [], disk_free=6 * GIB, disk_slope=-GIB / 300), Watch())
    assert [e.severity for e in book.settle(forecast)] == ["warning"]
    full = look(Facts("running", [], disk_free=GIB // 2, disk_slope=-GIB / 300), Watch())
    assert [(e.severity, e.state) for e in book.settle(full)] == [("critical", "raised")]
    assert book.settle(full) == []


def test_durations_read_well() -> None:
    assert [duration(s) for s in (0.25, 42, 600, 9000)] == ["0.2 s", "42 s", "10 min", "2.5 h"]
