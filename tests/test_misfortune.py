"""What machines do to runs: a disk that fills, a clock that jumps, a folder whose path is long."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import end, events, in_state, left_over, prepare, running, until

from harbortui.runs.events import AlarmChanged, Defect, EpisodeTurn, Note, ProcessChanged
from harbortui.runs.layout import Run
from harbortui.runs.reading import open_queries
from harbortui.supervisor import client
from harbortui.supervisor.lock import supervised


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of its own, 24 MB large, for the runs."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount a tmpfs")
    monkeypatch.setenv("HARBORTUI_RUNS", str(place / "runs"))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    with open(ballast, "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                pass
    return ballast


def test_a_full_disk_stops_nobody_loses_nothing_and_is_told(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "witness"
    witness.mkdir()
    monkeypatch.setenv("HARBORTUI_DEMO_WITNESS", str(witness))
    with running(tmp_path, "demo.rate=100.0", "supervision.log_bytes=65536") as run:
        in_state(run, "running")
        alarm = until(lambda: [e for e in events(run, "supervisor", AlarmChanged) if e.key == "disk"], "the alarm")
        assert alarm[0].text.startswith("the disk is nearly full")
        until(lambda: events(run, None, EpisodeTurn), "episodes run")
        ballast = fill(small_disk)
        with client.connect(run) as speaker:
            answer = speaker.ask("pause")
            assert (answer.ok, answer.answer) == (False, "the wish could not be written down: No space left on device")
            said = list(_notes_until_held(speaker))
        before = len(events(run, None, EpisodeTurn))
        ballast.unlink()
        until(lambda: [e for e in events(run) if isinstance(e, Defect)], "what was held is told")
        until(lambda: len(events(run, None, EpisodeTurn)) > before, "episodes go on")
        assert [n.text for n in events(run, "supervisor", Note)] == said
        assert [e for e in events(run, "supervisor", ProcessChanged) if e.state in ("backoff", "failed")] == []
        with client.connect(run) as speaker:
            assert speaker.ask("stop").ok
        in_state(run, "finished")
        until(lambda: not supervised(run), "the supervisor leaves")
        for path in witness.iterdir():
            lines = (run.journals / path.name).read_bytes().split(b"\n")[:-1]
            assert len(lines) >= int(path.read_text()), path.name


def _notes_until_held(speaker: client.Client) -> Iterator[str]:
    """The last page of a journal may have room for some more."""
    for i in range(200):
        answer = speaker.ask("note", text=f"note {i}")
        assert answer.ok
        yield f"note {i}"
        if answer.answer == "noted (held in memory: the journal cannot be written)":
            return
    raise AssertionError("the journal never filled up")


JUMPING_CLOCK = """
import os, time
_time = time.time
def _jumped():
    try:
        return _time() + float(open(os.environ["JUMP"]).read() or 0)
    except OSError:
        return _time()
if "JUMP" in os.environ:
    time.time = _jumped
"""


@pytest.mark.parametrize("jump", [7200, -7200])
def test_a_clock_that_jumps_is_told_and_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(JUMPING_CLOCK)
    monkeypatch.setenv("PYTHONPATH", str(shim))
    monkeypatch.setenv("JUMP", str(tmp_path / "jump"))
    with running(tmp_path) as run:
        in_state(run, "running")
        (tmp_path / "jump").write_text(str(jump))
        way = "forward" if jump > 0 else "back"
        alarms = until(lambda: events(run, "supervisor", AlarmChanged), "the alarm")
        assert alarms[0].text == f"the clock jumped {way} by 2.0 h; times before and after do not compare"
        with client.connect(run) as speaker:
            speaker.ask("pause")
            in_state(run, "paused")
            with open_queries(run) as queries:
                until(lambda: queries.run().state == "paused", "the index says what is so")
            speaker.ask("resume")
            in_state(run, "running")
        assert [e.key for e in events(run, "supervisor", AlarmChanged)] == ["clock"]
        assert [e for e in events(run, "supervisor", ProcessChanged) if e.state == "backoff"] == []


def test_a_run_in_a_folder_with_a_very_long_path_can_be_spoken_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path.joinpath(*["a-rather-long-name-of-a-folder"] * 5)
    monkeypatch.setenv("HARBORTUI_RUNS", str(folder))
    with running(tmp_path) as run:
        assert len(str(run.control)) > 108
        in_state(run, "running")
        with client.connect(run) as speaker:
            assert speaker.ask("ping").ok


def test_a_run_directory_that_vanishes_leaves_no_process_behind(tmp_path: Path) -> None:
    run = prepare(tmp_path)
    client.launch(run)
    try:
        in_state(run, "running")
        with client.connect(run) as speaker:
            until(lambda: shutil.rmtree(run.path, ignore_errors=True) or not run.path.exists(), "it is gone")
            assert speaker.ask("stop", now=True).ok
        until(lambda: left_over(Run(run.path)) == [], "everything has gone")
        assert not os.path.exists(run.path)
    finally:
        end(run)
