"""The journal: what is acknowledged stays, whatever happens to its file; a reader never fails."""

import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_reader import read, texts, told
from runs_story import make_run

from harbortui.runs.events import (
    EpisodeTurn,
    MetricRow,
    Note,
    OperatorAction,
    StepDone,
    Unknown,
)
from harbortui.runs.journal import Journal, JournalInUse
from harbortui.runs.layout import Run
from harbortui.runs.lines import MAX_LINE, Cursor, interpret
from harbortui.runs.merged import merged


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run")


def test_an_event_is_read_back_with_who_wrote_it_and_when(run: Run) -> None:
    with Journal.open(run, "rollouts-0", "rollouts", attempt=3, demo=True) as journal:
        assert journal.append(Note(text="hello"))
    (opened, note), wrong = read(journal.path)
    assert (opened.process, opened.role, opened.pid) == ("rollouts-0", "rollouts", os.getpid())
    assert (note.text, note.attempt, note.demo, wrong) == ("hello", 3, True, [])
    assert note.t > 1.7e9
    assert note.m > 0
    assert journal.path.name == f"rollouts-0-{os.getpid()}-3.jsonl"


def test_what_a_killed_writer_had_acknowledged_is_there(run: Run) -> None:
    program = (
        "import sys, pathlib\n"
        "from harbortui.runs.journal import Journal\n"
        "from harbortui.runs.events import Note\n"
        "journal = Journal(pathlib.Path(sys.argv[1]), 'w', 'w')\n"
        "for i in range(10**9):\n"
        "    if journal.append(Note(text=str(i))): print(i, flush=True)\n"
    )
    path = run.journals / "w-1-1.jsonl"
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 300:
            child.send_signal(signal.SIGKILL)
            break
    rest = [line for line in child.stdout.read().split("\n") if line]
    acknowledged = int(rest[-1]) if rest else 300
    child.wait()
    written = texts(path)
    assert written[: acknowledged + 1] == [str(i) for i in range(acknowledged + 1)]


def test_a_torn_last_line_is_left_alone_and_then_named(run: Run) -> None:
    with Journal.open(run, "p", "p", 1) as journal:
        journal.append(Note(text="whole"))
    with journal.path.open("ab") as file:
        file.write(b'{"kind":"note","text":"to')
    cursor = Cursor(journal.path)
    assert len(cursor.read().lines) == 2
    assert cursor.read().pending == 25
    with Journal.open(run, "p", "p", 1) as again:
        again.append(Note(text="after"))
    events, wrong = read(journal.path)
    assert texts(journal.path) == ["whole", "after"]
    assert (len(events), wrong) == (4, ["torn line"])


def test_zero_bytes_and_other_than_utf8_are_named_and_passed_over(run: Run) -> None:
    path = run.journals / "p-1-1.jsonl"
    note = b'{"kind":"note","text":"%s"}\n'
    path.write_bytes(
        note % b"a" + b"\0" * 4096 + note % b"b" + b"\0\0\n" + note % b"\xff\xfe" + b"{}\n\n[1]\n" + note % b"c"
    )
    assert texts(path) == ["a", "b", "c"]
    assert read(path)[1] == ["zero bytes", "zero bytes", "not UTF-8", "no event", "no event"]


def test_a_line_of_50_mb_is_passed_over_in_little_memory(run: Run) -> None:
    path = run.journals / "p-1-1.jsonl"
    with path.open("wb") as file:
        file.write(b'{"kind":"note","text":"a"}\n{"kind":"note","text":"')
        for _ in range(50):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n{"kind":"note","text":"b"}\n')
    tracemalloc.start()
    notes, wrong = texts(path), read(path)[1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert notes == ["a", "b"]
    assert wrong == ["line too long"]
    assert peak < 8 << 20


def test_a_long_unfinished_line_is_searched_once(run: Run) -> None:
    path = run.journals / "p-1-1.jsonl"
    path.write_bytes(b"x" * (3 << 20))
    cursor = Cursor(path)
    assert cursor.read().pending == 3 << 20
    with path.open("ab") as file:
        file.write(b'\n{"kind":"note","text":"b"}\n')
    batch = cursor.read()
    assert [(bad.offset, bad.what, bad.size) for bad in batch.bad] == [(0, "line too long", 3 << 20)]
    assert len(cursor.read().lines) == 1


@given(
    pieces=st.lists(st.one_of(st.binary(max_size=60), st.integers(0, 9).map(str)), max_size=12),
    limit=st.sampled_from([1, 7, 64, 1 << 20]),
)
def test_events_amid_any_rubbish_are_found_and_nothing_is_raised(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes | str], limit: int
) -> None:
    path = tmp_path_factory.mktemp("j") / "p-1-1.jsonl"
    lines = [b'{"kind":"note","text":"%s"}' % p.encode() if isinstance(p, str) else p for p in pieces]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    cursor, found = Cursor(path), []
    while (batch := cursor.read(limit)).end > batch.start:
        found += [event for line in batch.lines if (event := interpret(line)[0])]
    assert [e.text for e in found if isinstance(e, Note)] == [p for p in pieces if isinstance(p, str)]
    assert cursor.offset == path.stat().st_size


def test_a_deleted_file_is_made_anew_with_everything_in_it(run: Run) -> None:
    with Journal.open(run, "p", "p", 1) as journal:
        for i in range(1000):
            journal.append(Note(text=str(i)))
        cursor = Cursor(journal.path)
        seen = len(cursor.read().lines)
        journal.path.unlink()
        assert cursor.read().state == "missing"
        assert journal.append(Note(text="1000"))
        assert seen + len(cursor.read().lines) == len(["opened", *range(1001), "made anew"])
    assert texts(journal.path) == [str(i) for i in range(1001)]
    assert told(journal.path) == [("made anew", 1)]
    assert not [p for p in run.journals.iterdir() if p != journal.path]


def test_a_file_that_was_moved_away_or_replaced_is_noticed_by_flush(run: Run) -> None:
    with Journal.open(run, "p", "p", 1) as journal:
        journal.append(Note(text="a"))
        journal.path.rename(run.journals / "elsewhere")
        journal.append(Note(text="b"))
        journal.path.write_bytes(b"somebody else's\n")
        journal.flush()
        journal.append(Note(text="c"))
        journal.flush()
    assert texts(journal.path) == ["a", "b", "c"]


def test_a_run_directory_that_was_removed_is_not_made_again(run: Run, tmp_path: Path) -> None:
    with Journal.open(run, "p", "p", 1) as journal:
        run.path.rename(tmp_path / "trash")
        (tmp_path / "trash" / "journal" / journal.path.name).unlink()
        assert not journal.append(Note(text="a"))
        assert journal.pending == 1
    assert not run.path.exists()
    assert journal.close() == 1


def test_what_cannot_be_a_line_is_refused_and_told(run: Run) -> None:
    with Journal.open(run, "p", "p", 1) as journal:
        assert not journal.append(Note(text="x" * MAX_LINE))
        assert not journal.append(OperatorAction(verb="set", state="accepted", arguments={"value": object()}))
        assert journal.append(Note(text="half a character: \udc80"))
    assert texts(journal.path) == ["half a character: ?"]
    assert told(journal.path) == [("too long", 1), ("cannot be encoded", 1)]


def test_a_second_writer_of_a_journal_is_refused(run: Run) -> None:
    with Journal.open(run, "p", "p", 1) as journal:
        with pytest.raises(JournalInUse, match="another process"):
            Journal.open(run, "p", "p", 1)
        assert journal.append(Note(text="a"))
    Journal.open(run, "p", "p", 1).close()


def test_threads_may_share_a_journal(run: Run) -> None:
    with Journal.open(run, "p", "p", 1) as journal:
        threads = [
            threading.Thread(target=lambda k=k: [journal.append(Note(text=f"{k}.{i}")) for i in range(200)])
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(texts(journal.path)) == sorted(f"{k}.{i}" for k in range(4) for i in range(200))


def test_numbers_that_are_none_are_read_as_absent(run: Run) -> None:
    with Journal.open(run, "p", "p", 1) as journal:
        journal.append(MetricRow(step=1, values={"loss": float("nan"), "kl": 0.5}))
        journal.append(StepDone(step=1, loss=float("inf"), seconds=float("nan")))
    _, row, step = read(journal.path)[0]
    assert (row.values, step.loss, step.seconds) == ({"kl": 0.5}, None, 0.0)


def test_kinds_and_fields_of_a_newer_version_are_kept_and_passed_over(run: Run) -> None:
    path = run.journals / "p-1-1.jsonl"
    path.write_bytes(
        b'{"kind":"note","text":"a","colour":"red","version":2}\n'
        b'{"kind":"dream","t":5,"about":["sheep"],"version":2}\n'
        b'{"kind":"episode.finished","id":"e","cause":"bored","version":2}\n'
        b'{"kind":"episode.finished","id":"e","cause":"bored"}\n'
    )
    (note, dream, bored), wrong = read(path)
    assert note.text == "a"
    assert isinstance(dream, Unknown)
    assert (dream.kind, dream.t, dream.body["about"], bored.kind) == ("dream", 5.0, ["sheep"], "episode.finished")
    assert wrong == ["no event"]


@given(
    st.builds(
        EpisodeTurn,
        id=st.text(max_size=5),
        turn=st.integers(0, 99),
        commands=st.lists(st.text(), max_size=3),
        context=st.none() | st.floats(0, 1),
        t=st.floats(1, 2**32),
        m=st.floats(1, 1e6),
    )
)
def test_any_event_survives_the_journal(tmp_path_factory: pytest.TempPathFactory, event: EpisodeTurn) -> None:
    with Journal(tmp_path_factory.mktemp("j") / "p-1-1.jsonl", "p", "p", attempt=1) as journal:
        assert journal.append(event)
    assert read(journal.path) == ([read(journal.path)[0][0], event], [])


def test_all_journals_are_merged_by_time_and_followed(run: Run) -> None:
    looked: list[float] = []
    with Journal.open(run, "a", "a", 1) as a, Journal.open(run, "b", "b", 1) as b:
        now = time.time()
        for after, journal in ((2.0, a), (1.0, b), (3.0, b), (5.0, a)):
            journal.append(Note(text=str(after), t=now + after))
        found = [(process, event.text) for process, event in merged(run, ["note"], since=now + 1.5)]
        assert found == [("a", "2.0"), ("b", "3.0"), ("a", "5.0")]

        def appear(seconds: float) -> None:
            looked.append(seconds)
            with Journal.open(run, "c", "c", 1) as c:
                c.append(Note(text="late"))
            b.append(Note(text="later"))

        following = merged(run, {"note"}, follow=True, sleep=appear)
        assert [next(following)[1].text for _ in range(6)] == ["1.0", "2.0", "3.0", "5.0", "late", "later"]
    assert len(looked) == 1
