"""Journals on disks that fill, fail and lose files: what was acknowledged stays, what was not is told."""

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_reader import read, texts, told
from runs_story import make_run

from harbortui.runs import journal as journal_module
from harbortui.runs.events import (
    CheckpointChanged,
    Note,
    OperatorAction,
    RunChanged,
    StepDone,
)
from harbortui.runs.journal import Journal
from harbortui.runs.layout import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run")


@contextlib.contextmanager
def room(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size`: like a disk that is full in the middle of a line."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_a_full_disk_lines_are_held_in_order_and_nothing_half_is_left(run: Run) -> None:
    with Journal.open(run, "p", "p", 1) as journal:
        size = journal.path.stat().st_size
        with room(size + 150):
            answers = [journal.append(Note(text=str(i))) for i in range(8)]
        assert answers == [True] * answers.index(False) + [False] * (8 - answers.index(False))
        held = answers.count(False)
        assert (journal.pending, bool(journal.trouble)) == (held, True)
        assert journal.path.read_bytes().endswith(b"}\n")
        assert journal.append(Note(text="8"))
        assert (journal.pending, journal.trouble) == (0, "")
    assert texts(journal.path) == [str(i) for i in range(9)]
    assert told(journal.path) == [("held", held)]


def test_on_a_really_full_disk_too(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no right to mount a small disk here; the limit on file sizes stands for it above")
    try:
        run = make_run(disk / "run")
        with Journal.open(run, "p", "p", 1) as journal:
            (disk / "ballast").write_bytes(b"x" * 40_000)
            count = 0
            while journal.append(Note(text=str(count) + "." * 500)):
                count += 1
            other = Journal.open(run, "q", "q", 1)
            assert not journal.append(Note(text="late"))
            assert (journal.pending, other.pending > 0) == (2, True)
            (disk / "ballast").unlink()
            assert journal.flush()
            assert other.flush()
            assert other.close() == 0
        assert [int(text.split(".")[0]) for text in texts(journal.path)[:-1]] == list(range(count + 1))
        assert texts(journal.path)[-1] == "late"
        assert told(journal.path) == [("held", 2)]
        assert read(other.path)[1] == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_when_too_much_is_held_the_oldest_that_may_be_lost_are_dropped(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "HELD_BYTES", 1000)
    with Journal.open(run, "p", "p", 1) as journal:
        with room(journal.path.stat().st_size):
            journal.append(RunChanged(state="paused"))
            for i in range(50):
                journal.append(Note(text=str(i)))
            assert journal.pending < 51
        dropped = journal.dropped
        assert journal.flush()
    events = read(journal.path)[0]
    assert [e.state for e in events if isinstance(e, RunChanged)] == ["paused"]
    assert texts(journal.path) == [str(i) for i in range(dropped, 50)]
    assert told(journal.path) == [("held", 51), ("dropped", dropped)]


def test_durable_kinds_are_on_the_disk_before_they_are_acknowledged(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_size))
    with Journal.open(run, "p", "p", 1) as journal:
        journal.append(Note(text="a"))
        journal.append(CheckpointChanged(id="c", state="writing"))
        assert synced == []
        for event in (
            CheckpointChanged(id="c", state="whole"),
            RunChanged(state="running"),
            StepDone(step=1),
            OperatorAction(verb="pause", state="accepted"),
        ):
            synced.clear()
            assert journal.append(event)
            assert synced == [journal.path.stat().st_size]


def test_a_disk_that_fails_to_sync_leaves_durable_events_unacknowledged(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with Journal.open(run, "p", "p", 1) as journal:
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", fail)
            assert not journal.append(StepDone(step=1))
            assert journal.append(Note(text="a"))
        assert journal.append(StepDone(step=2))
    assert [e.step for e in read(journal.path)[0] if isinstance(e, StepDone)] == [1, 2]
    assert told(journal.path) == [("not on disk", 1)]


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["append", "append", "durable", "full", "room", "delete", "replace", "flush", "reopen", "tear"]
        ),
        max_size=25,
    )
)
def test_whatever_happens_every_acknowledged_event_is_read_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, happenings: list[str]
) -> None:
    run = make_run(tmp_path_factory.mktemp("j") / "run")
    journal = Journal.open(run, "p", "p", 1)
    acknowledged: list[str] = []
    lost: set[str] = set()
    waiting: list[str] = []
    strange = {"torn line"}
    with contextlib.ExitStack() as disk:
        for number, happening in enumerate(happenings):
            if happening in ("append", "durable"):
                text = str(number)
                kind = Note(text=text) if happening == "append" else OperatorAction(verb=text, state="accepted")
                if journal.append(kind):
                    acknowledged += [*waiting, text]
                    waiting.clear()
                else:
                    waiting.append(text)
            elif happening == "full":
                size = journal.path.stat().st_size if journal.path.exists() else 0
                disk.enter_context(room(size + number))
            elif happening == "room":
                disk.close()
            elif happening == "delete":
                journal.path.unlink(missing_ok=True)
            elif happening == "replace":
                with contextlib.suppress(OSError):
                    (run.journals / "other").write_bytes(b"{}\n")
                    (run.journals / "other").rename(journal.path)
            elif happening == "flush" and journal.flush():
                acknowledged += waiting
                waiting.clear()
            elif happening == "reopen":
                if homeless(journal):
                    lost |= set(acknowledged)
                    acknowledged.clear()
                    strange.add("no event")
                lost |= set(waiting) if journal.close() else set()
                acknowledged += [] if journal.pending else waiting
                waiting.clear()
                disk.close()
                journal = Journal.open(run, "p", "p", 1)
            elif happening == "tear" and journal.path.exists() and not homeless(journal):
                journal.close()
                disk.close()
                acknowledged += waiting if not journal.pending else []
                waiting.clear()
                with journal.path.open("ab") as file:
                    file.write(b'{"kind":"no')
                journal = Journal.open(run, "p", "p", 1)
    journal.flush()
    journal.close()
    events, wrong = read(journal.path)
    found = [e.text if isinstance(e, Note) else e.verb for e in events if isinstance(e, Note | OperatorAction)]
    assert [text for text in found if text in acknowledged] == acknowledged
    assert set(found) - set(acknowledged) <= set(waiting) | lost
    assert set(wrong) <= strange


def homeless(journal: Journal) -> bool:
    """Deleted or replaced, and no room to make it anew: only then does closing lose what was acknowledged."""
    journal.flush()
    try:
        return journal.path.stat().st_ino != os.fstat(journal._fd).st_ino
    except FileNotFoundError:
        return True
