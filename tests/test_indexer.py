"""The indexer process: killed, doubled, orphaned, asked to rebuild; and openers that do its work where it is not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runs_story import journal_of, make_run, story, write
from test_index import digest

from harbortui.runs import indexer
from harbortui.runs import journal as journal_module
from harbortui.runs.events import Note
from harbortui.runs.index.place import Lock, place_of
from harbortui.runs.index.writer import Index
from harbortui.runs.layout import Run
from harbortui.runs.queries import IndexUnusable
from harbortui.runs.reading import follow, lag, open_queries, rebuild


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run")


@contextmanager
def indexing(run: Run, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-m", "harbortui.runs.indexer", str(run.path), *options])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def until(true: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.01)


def taken_in(run: Run) -> bool:
    try:
        with open_queries(run, wait=0) as queries:
            return lag(run, queries) == 0
    except IndexUnusable:
        return False


def working(run: Run) -> bool:
    with Lock(place_of(run)) as lock:
        return not lock.take()


def test_a_killed_indexer_goes_on_where_its_last_batch_ended(run: Run) -> None:
    for pid in range(100, 140):
        write(run, story(pid, 60), pid=pid)
    killed = 0
    for _ in range(6):
        with indexing(run) as child:
            until(lambda: working(run) and run.index.exists())
            time.sleep(0.02 * killed)
            child.send_signal(signal.SIGKILL)
            child.wait()
            killed += 1
    with indexing(run, "--once") as child:
        assert child.wait(30) == 0
    pieces = digest(run)
    rebuild(run)
    assert digest(run) == pieces


def test_of_two_indexers_one_works_and_the_other_takes_over(run: Run) -> None:
    write(run, story(1))
    with indexing(run) as one:
        until(lambda: run.index.exists() and taken_in(run))
        with indexing(run) as two:
            assert int((run.path / "index.lock").read_text()) == one.pid
            one.kill()
            one.wait()
            until(lambda: (run.path / "index.lock").read_text() == f"{two.pid}\n")
            write(run, story(2), pid=200)
            until(lambda: taken_in(run))
            two.terminate()
            assert two.wait(10) == 0
    assert not working(run)


def test_a_live_journal_is_read_within_a_moment(run: Run) -> None:
    with indexing(run), journal_module.Journal.open(run, "p", "p", 1) as journal:
        until(lambda: run.index.exists() and taken_in(run))
        with open_queries(run) as queries:
            for text in ("a", "b"):
                journal.append(Note(text=text))
                until(lambda text=text: queries.notes() and queries.notes()[0].text == text, 2)


def test_an_indexer_at_work_rebuilds_when_asked(run: Run) -> None:
    write(run, story(1))
    with indexing(run):
        until(lambda: run.index.exists() and taken_in(run))
        before = os.readlink(run.index)
        rebuild(run)
        assert os.readlink(run.index) != before
        until(lambda: taken_in(run))
        assert not place_of(run).request.exists()
        with open_queries(run) as queries:
            assert [row.detail for row in queries.defects()] == ["it was asked for"]


def test_a_follower_is_started_once_and_ends_with_who_started_it(run: Run) -> None:
    write(run, story(1))
    program = (
        "import sys, pathlib, time\n"
        "from harbortui.runs.layout import Run\n"
        "from harbortui.runs.reading import follow\n"
        "print(follow(Run(pathlib.Path(sys.argv[1]))).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    opener = subprocess.Popen([sys.executable, "-c", program, str(run.path)], stdout=subprocess.PIPE)
    try:
        assert opener.stdout is not None
        assert int(opener.stdout.readline()) > 0
        until(lambda: working(run))
        assert follow(run) is None
    finally:
        opener.kill()
        opener.wait()
    until(lambda: not working(run))


def test_an_indexer_ends_when_its_run_is_removed(run: Run, tmp_path: Path) -> None:
    write(run, story(1))
    with indexing(run) as child:
        until(lambda: run.index.exists() and taken_in(run))
        run.path.rename(tmp_path / "trash")
        assert child.wait(10) == 0


def test_an_indexer_of_no_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert indexer.main([str(tmp_path / "none")]) == 2
    assert "is no directory" in capsys.readouterr().err


def test_an_idle_indexer_hardly_uses_the_processor(run: Run) -> None:
    for number in range(35):
        journal_of(run, f"p{number}").write_bytes(b'{"kind":"note","t":5,"text":"a"}\n')
    with indexing(run) as child:
        until(lambda: run.index.exists() and taken_in(run))
        time.sleep(0.5)

        def used() -> float:
            fields = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        before = used()
        time.sleep(2)
        assert used() - before <= 0.04


def test_a_dead_run_is_opened_with_progress_and_leaves_no_lock(run: Run) -> None:
    write(run, story(1, 200))
    told: list[tuple[int, int]] = []
    with open_queries(run, lambda done, total: told.append((done, total))) as queries:
        assert queries.totals().n > 0
        assert told[-1][0] == told[-1][1] == sum(path.stat().st_size for path in run.journals.iterdir())
        assert not working(run)
        assert lag(run, queries) == 0
    with open_queries(run) as again:
        assert again.defects() == []


def test_on_a_full_disk_an_index_is_read_as_it_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, *_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Index, "catch_up", fail)
    monkeypatch.setattr(Index, "open", fail)
    write(run, story(1))
    with pytest.raises(IndexUnusable, match="No space left"):
        open_queries(run)
    monkeypatch.undo()
    open_queries(run).close()
    monkeypatch.setattr(Index, "catch_up", fail)
    write(run, story(2), pid=200)
    with open_queries(run) as queries:
        assert queries.totals().n > 0
        assert lag(run, queries) > 0


def test_an_opener_waits_for_the_index_that_another_is_about_to_make(run: Run) -> None:
    write(run, story(1))
    with Lock(place_of(run)) as lock:
        assert lock.take()
        with pytest.raises(IndexUnusable, match="no index"):
            open_queries(run, wait=0)
        with indexing(run):
            lock.free()
            with open_queries(run) as queries:
                assert queries.run() is not None or lag(run, queries) >= 0
