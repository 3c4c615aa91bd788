"""The index says the same whatever the order, the journals and the batches in which events came in."""

import itertools
import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs_story import BEGIN, journal_of, make_run, story, write

from harbortui.runs import events as ev
from harbortui.runs.index import content, schema
from harbortui.runs.index.attempts import Attempts
from harbortui.runs.index.ingest import Ingest
from harbortui.runs.index.place import Lock, place_of
from harbortui.runs.index.rollups import Rollups
from harbortui.runs.index.writer import Index
from harbortui.runs.layout import Run
from harbortui.runs.reading import lag, open_queries, rebuild

PROCESSES = ("orchestrator", "rollouts-0", "trainer")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run")


@contextmanager
def indexed(run: Run, thorough: bool = False) -> Iterator[Index]:
    with Lock(place_of(run)) as lock:
        assert lock.take()
        with Index(run, place_of(run), thorough) as index:
            index.open()
            index.catch_up()
            yield index


def digest(run: Run) -> str:
    connection = sqlite3.connect(place_of(run).index)
    try:
        return content.digest(connection)
    finally:
        connection.close()


def defects(run: Run) -> list[tuple[str, str, int]]:
    with open_queries(run) as queries:
        return [(row.where, row.what, row.count) for row in queries.defects()]


# --- order ---


small = st.integers(0, 3)


values = st.sampled_from([None, 0.0, -0.0, 0.25, 1.0])


def moments(last: int) -> st.SearchStrategy[float]:
    return st.integers(0, last).map(lambda n: BEGIN + n * 4)


def of(kind: type[ev.Event], times: st.SearchStrategy[float], **fields: Any) -> st.SearchStrategy[ev.Event]:
    return st.builds(kind, t=times, m=times, attempt=st.integers(1, 2), **fields)


def episodes(times: st.SearchStrategy[float], ids: list[str]) -> list[st.SearchStrategy[ev.Event]]:
    key: dict[str, Any] = {"id": st.sampled_from(ids), "n": st.integers(1, 3)}
    queued = {"task": st.sampled_from(["", "t1", "t2"]), "group": st.sampled_from(["", "g1"]), "eval": st.booleans()}
    return [
        of(ev.EpisodeQueued, times, **key, **queued, step=st.none() | small),
        of(ev.EpisodeStarted, times, **key, worker=st.sampled_from(["w1", "w2"]), task=st.sampled_from(["", "t3"])),
        of(ev.EpisodePhase, times, **key, phase=st.sampled_from(["environment", "agent"])),
        of(ev.EpisodeTurn, times, **key, turn=small, completion_tokens=small, context=values),
        of(ev.EpisodeHeld, times, **key, held=st.booleans(), seconds=st.floats(0, 9)),
        of(ev.EpisodeFinished, times, **key, cause=st.sampled_from(ev.CAUSES), reward=values, seconds=st.floats(0, 9)),
    ]


def others(times: st.SearchStrategy[float]) -> list[st.SearchStrategy[ev.Event]]:
    states = st.sampled_from(["opened", "trained", "dropped"])
    use = {"cpu": st.floats(0, 9), "gpu_use": st.none() | st.floats(0, 1), "rss": small}
    return [
        of(ev.GroupChanged, times, id=st.just("g1"), state=states, step=st.none() | small),
        of(ev.StepDone, times, step=small, loss=values),
        of(ev.MetricRow, times, values=st.just({"kl": 0.5}), step=st.none() | small),
        of(ev.RunChanged, times, state=st.sampled_from(["running", "paused"]), resumed_from=st.none() | small),
        of(ev.Resources, times, process=st.just("trainer"), **use),
        of(ev.Acknowledged, times, sequence=small),
        of(ev.AlarmChanged, times, key=st.just("k"), state=st.sampled_from(["raised", "cleared"])),
        of(ev.Activity, times, doing=st.sampled_from(["training", "idle"])),
    ]


def lists(kinds: list[st.SearchStrategy[ev.Event]]) -> st.SearchStrategy[list[tuple[str, ev.Event]]]:
    return st.lists(st.tuples(st.sampled_from(PROCESSES), st.one_of(kinds)), max_size=40)


crowded = lists(episodes(moments(3), ["e1"]))


various = lists(episodes(moments(30), ["e1", "e2"]) + others(moments(30)))


def ingested(batches: list[list[tuple[str, str, bytes]]]) -> list[tuple[str, tuple[object, ...]]]:
    """What an index says after these batches of (journal, process, line)."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.create(connection)
    ingest = Ingest(connection)
    for batch in batches:
        with ingest:
            for journal, process, line in batch:
                ingest.lines(journal, process, [line], 0)
    found = list(content.rows(connection))
    connection.close()
    return found


@settings(max_examples=300)
@given(told=crowded | various, seed=st.integers(0, 2**32))
def test_order_journals_batches_and_repetition_do_not_matter(told: list[tuple[str, ev.Event]], seed: int) -> None:
    dice = random.Random(seed)
    lines = [(process, process, ev.encode(event)) for process, event in told]
    shuffled = [(f"{process}-{dice.randint(1, 3)}", process, line) for _, process, line in lines]
    shuffled += dice.sample(shuffled, len(shuffled) // 3)
    dice.shuffle(shuffled)
    cuts = sorted(dice.randint(0, len(shuffled)) for _ in range(4))
    batches = [shuffled[a:b] for a, b in itertools.pairwise([0, *cuts, len(shuffled)])]
    assert ingested(batches) == ingested([lines])


@pytest.mark.parametrize("seed", range(5))
def test_rollups_are_the_sums_of_the_rows(run: Run, seed: int) -> None:
    write(run, story(seed, 40))
    with indexed(run):
        pass
    connection = sqlite3.connect(place_of(run).index)
    mine = ", ".join(repr(cause) for cause in sorted(ev.POLICY_CAUSES))
    counted = (
        f"count(*), sum(cause IN ({mine})), "
        f"sum(CASE WHEN cause IN ({mine}) THEN 1000000 * coalesce(reward, 0) ELSE 0 END), sum(turns) FROM episode "
        "WHERE finished IS NOT NULL AND superseded IS NULL"
    )
    for table, keys, among in (
        ("task_tally", ["eval", "task"], ""),
        ("step_tally", ["eval", "attempt", "step"], "AND step IS NOT NULL"),
        ("heat", ["eval", "task", "attempt", "step"], "AND step IS NOT NULL"),
        ("group_tally", ["grp"], ""),
        ("bucket", ["eval"], ""),
    ):
        key = ", ".join(keys)
        rolled = (
            f"SELECT {key}, sum(n), sum(own), sum(reward), sum(turns) FROM {table} GROUP BY {key} HAVING sum(n) > 0"
        )
        summed = f"SELECT {key}, {counted} {among} GROUP BY {key}"
        assert sorted(connection.execute(rolled)) == sorted(connection.execute(summed)), table
    told = connection.execute("SELECT count(*), sum(completion) FROM turn").fetchone()
    assert connection.execute("SELECT sum(told), sum(completion) FROM pace").fetchone() == told
    connection.close()


# --- rebuilding ---


def test_an_index_built_in_pieces_equals_one_built_anew(run: Run) -> None:
    told = story(3, 60)
    with indexed(run) as index:
        for i in range(0, len(told), 37):
            write(run, told[i : i + 37])
            index.poll()
    pieces = digest(run)
    rebuild(run)
    assert digest(run) == pieces
    assert ("index", "built anew", 1) in defects(run)


def test_a_batch_may_end_anywhere_in_a_journal(run: Run) -> None:
    write(run, story(4, 30))
    with Lock(place_of(run)) as lock, Index(run, place_of(run)) as index:
        assert lock.take()
        index.open()
        polls = 0
        while index.poll(limit=2000):
            polls += 1
    assert polls > 10
    pieces = digest(run)
    rebuild(run)
    assert digest(run) == pieces


@pytest.mark.parametrize("version", [0, schema.VERSION + 1])
def test_an_index_of_another_version_is_built_anew(run: Run, version: int) -> None:
    write(run, story(1))
    with indexed(run):
        pass
    before = digest(run)
    connection = sqlite3.connect(place_of(run).index)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("DELETE FROM episode")
    connection.commit()
    connection.close()
    with indexed(run):
        pass
    assert digest(run) == before
    with open_queries(run) as queries:
        assert f"of version {version}" in next(row.detail for row in queries.defects() if row.where == "index")


def test_a_damaged_index_is_built_anew(run: Run) -> None:
    write(run, story(1))
    with indexed(run):
        pass
    before = digest(run)
    generation = place_of(run).generation()
    assert generation is not None
    generation.write_bytes(generation.read_bytes()[:5000] + b"rubbish" * 999)
    with indexed(run):
        pass
    assert digest(run) == before


def test_an_index_that_lost_a_table_while_at_work_is_built_anew(run: Run) -> None:
    write(run, story(1))
    with indexed(run) as index:
        connection = sqlite3.connect(place_of(run).index)
        connection.execute("DROP TABLE turn")
        connection.commit()
        connection.close()
        write(run, story(1), pid=200)
        while index.poll():
            pass
    assert ("index", "built anew", 1) in defects(run)
    with open_queries(run) as queries:
        assert lag(run, queries) == 0


def test_an_index_that_was_deleted_while_at_work_is_made_again(run: Run) -> None:
    write(run, story(1))
    with indexed(run) as index:
        for path in run.path.glob("index*sqlite*"):
            path.unlink()
        while index.poll():
            pass
        with open_queries(run) as queries:
            assert queries.totals().n > 0


def test_a_reader_moves_on_to_the_index_that_replaced_its_own(run: Run) -> None:
    write(run, story(1))
    with open_queries(run) as queries:
        totals = queries.totals()
        write(run, story(2), pid=200)
        rebuild(run)
        assert queries.totals() != totals
        generations = [path.name for path in run.path.glob("index-*.sqlite")]
        assert generations == [os.readlink(run.index)]


# --- misfortunes of journals ---


def test_every_misfortune_of_a_line_is_counted_with_its_journal(run: Run) -> None:
    note = b'{"kind":"note","t":5,"text":"%s"}\n'
    path = journal_of(run, "p")
    path.write_bytes(
        note % b"a"
        + b"\0\0" + note % b"b"
        + note % b"\xff"
        + b'{"kind":"no\n' * 3
        + b'{"kind":"dream","t":6}\n' * 2
        + note % (b"x" * (50 << 20))
        + b'{"kind":"episode.turn","id":"e","turn":99999999999999999999}\n'
        + note % b"c"
        + b'{"kind":"note"'
    )  # fmt: skip
    with open_queries(run) as queries:
        assert [note.text for note in queries.notes()] == ["c", "b", "a"]
        name = path.name
        assert [(row.where, row.what, row.count) for row in queries.defects()] == [
            (name, "line too long", 1),
            (name, "no event", 1),
            (name, "not UTF-8", 1),
            (name, "torn line", 3),
            (name, "zero bytes", 1),
            (name, "unfinished last line", 1),
            ("", "unknown kind of event", 2),
        ]
        assert lag(run, queries) == len(b'{"kind":"note"')


def test_a_journal_that_vanishes_and_comes_back_goes_on(run: Run) -> None:
    told = [each for each in story(5) if each[0] == "rollouts-0"]
    write(run, told[:20])
    path = journal_of(run, "rollouts-0")
    with indexed(run) as index:
        held = path.read_bytes()
        path.unlink()
        index.poll()
        with open_queries(run) as queries:
            assert ("rollouts-0-100-1.jsonl", "missing") in [(row.where, row.what) for row in queries.defects()]
            before = queries.last_moment()
        path.write_bytes(held)
        write(run, told[20:])
        index.poll()
        with open_queries(run) as queries:
            assert queries.last_moment() > before
            assert queries.defects() == []
    pieces = digest(run)
    rebuild(run)
    assert digest(run) == pieces


@pytest.mark.parametrize("how", ["shrunk", "replaced", "removed"])
def test_a_journal_that_is_not_what_was_read_makes_the_index_be_built_anew(run: Run, how: str) -> None:
    write(run, story(6))
    path = journal_of(run, "rollouts-0")
    with indexed(run) as index:
        if how == "shrunk":
            path.write_bytes(path.read_bytes()[:300])
        elif how == "replaced":
            path.write_bytes(path.read_bytes().replace(b'"e1"', b'"x1"') + b'{"kind":"note","text":"more"}\n')
        while index.poll():
            pass
    if how == "removed":
        path.unlink()
    with indexed(run, thorough=how == "replaced"):
        pass
    pieces = digest(run)
    assert ("index", "built anew", 1) in defects(run)
    rebuild(run)
    assert digest(run) == pieces


def test_a_rebuild_that_failed_is_tried_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(run, story(7))
    with indexed(run) as index:
        place_of(run).request.touch()
        with monkeypatch.context() as broken:
            broken.setattr(schema, "create", lambda connection: connection.execute("full disk"))
            with pytest.raises(sqlite3.OperationalError):
                index.poll()
        write(run, story(8), pid=200)
        while index.poll():
            pass
        assert not place_of(run).request.exists()
    pieces = digest(run)
    rebuild(run)
    assert digest(run) == pieces


@pytest.mark.parametrize("where", [(Rollups, "write"), (Attempts, "flush")])
def test_a_batch_that_failed_at_its_end_is_taken_in_again_whole(
    run: Run, monkeypatch: pytest.MonkeyPatch, where: tuple[type, str]
) -> None:
    def fail(self: object) -> None:
        original(self)
        raise MemoryError

    original = getattr(*where)
    with indexed(run) as index:
        write(run, story(8))
        with monkeypatch.context() as broken:
            broken.setattr(*where, fail)
            with pytest.raises(MemoryError):
                index.poll()
        while index.poll():
            pass
    pieces = digest(run)
    rebuild(run)
    assert digest(run) == pieces


def test_a_full_disk_loses_nothing_of_the_index(run: Run) -> None:
    write(run, story(7))
    with indexed(run) as index:
        write(run, story(8, 300), pid=200)
        connection = index._connection
        assert connection is not None
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            index.poll()
        connection.execute("PRAGMA max_page_count = 1000000")
        while index.poll():
            pass
    pieces = digest(run)
    rebuild(run)
    assert digest(run) == pieces


# --- places ---
